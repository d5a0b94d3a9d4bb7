"""COCO: images, categories and an annotation of the whole image for each label, and results for each classifier.

    OUT/annotations.json          images, categories, annotations (the truth, a box around the whole image)
    OUT/results-0.json            the answers of the first classifier, as COCO's results of detection
    OUT/images/                   images that lie nowhere as files

COCO's objects have boxes; a classifier's answer is about the image, so its box is the image. Fields beyond COCO's stand
in `c2b` of each image.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from PIL import Image, UnidentifiedImageError

from c2b_ray.report.formats.folder import Folder, json_line
from c2b_ray.report.formats.images import Counted, RunImages, below, placed
from c2b_ray.report.formats.readme import readme

Entry = dict[str, Any]


def write(images: RunImages, folder: Folder) -> Counted:
    counts, categories = Counted(), dict[str, int]()
    pictures, annotations, results = list[Entry](), list[Entry](), dict[str, list[Entry]]()
    for row in images.rows(with_bytes=True):
        size = size_of(row["bytes"])
        if size is None:
            continue
        path, _ = placed(row, folder, counts)
        width, height = size
        number, box = counts.images, [0, 0, width, height]
        row_facts = {name: row[name] for name in ("image_id", "key", "text", "cells", "tags")}
        pictures.append(
            {"id": number, "file_name": below(path, images.root), "width": width, "height": height, "c2b": row_facts}
        )
        if row["truth"] is not None:
            category = categories.setdefault(row["truth"], len(categories) + 1)
            content = {"bbox": box, "area": width * height, "iscrowd": 0}
            annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": category, **content})
        for prediction in row["predictions"]:
            if prediction["label"] is not None:
                category = categories.setdefault(prediction["label"], len(categories) + 1)
                # COCO's results need a score; an answer without a probability is taken as it stands.
                score = 1.0 if prediction["confidence"] is None else prediction["confidence"]
                answer = {"image_id": number, "category_id": category, "bbox": box, "score": score}
                results.setdefault(prediction["classifier"], []).append(answer | {"failed": prediction["failed"]})
    info = {"description": images.title, "version": "1", "contributor": "c2b-ray", "c2b": dict(images.about)}
    category_rows = [{"id": number, "name": name, "supercategory": ""} for name, number in categories.items()]
    content = {
        "info": info,
        "licenses": [],
        "images": pictures,
        "annotations": annotations,
        "categories": category_rows,
    }
    folder.put("annotations.json", json_line(content))
    for number, answers in enumerate(results.values()):
        folder.put(f"results-{number}.json", f"{json.dumps(answers, allow_nan=False)}\n".encode())
    folder.put("README.md", readme(images, counts, _loading(images, list(results))))
    return counts


def size_of(data: bytes) -> tuple[int, int] | None:
    """Returns width and height in pixels as the file's header has them; None for what is no image."""
    try:
        with Image.open(BytesIO(data)) as image:
            return image.size
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        return None


def _loading(images: RunImages, classifiers: list[str]) -> str:
    file_lines = "\n".join(
        f"- `results-{number}.json`: the answers of `{name}`" for number, name in enumerate(classifiers)
    )
    root = f"File names are relative to `{images.root}`.\n\n" if images.root else ""
    answers = '\nanswers = truth.loadRes("results-0.json")' if classifiers else ""
    return f"""{root}```python
from pycocotools.coco import COCO
truth = COCO("annotations.json"){answers}
```

{file_lines}
"""
