"""The folders that FiftyOne, Label Studio, COCO's tools and Hugging Face read, each with a README.md."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import islice
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image, UnidentifiedImageError

from c2b_ray.report import words
from c2b_ray.report.formats.folder import (
    Counted,
    Folder,
    Row,
    RunImages,
    below,
    extension,
    file_name,
    json_line,
    placed,
)
from c2b_ray.storage import is_remote
from c2b_ray.tables.path import EXPORTED_IMAGES

MOST_FINDINGS = 100


def readme(images: RunImages, counts: Counted, loading: str, front: Mapping[str, Any] | None = None) -> bytes:
    """Returns the file. `loading`: Markdown about reading the folder. `front`: YAML for a hub's pages."""
    findings = [f"- `{finding.tag}`: {_line(finding.sentence)}" for finding in images.findings[:MOST_FINDINGS]]
    if len(images.findings) > MOST_FINDINGS:
        findings.append(f"- And {words.count(len(images.findings) - MOST_FINDINGS)} more, in the run's report.")
    parts = [
        f"# {images.title}",
        f"{words.plural(counts.images, 'image')} of the run `{images.about.get('run_id')}` of c2b-ray. "
        f"{_place(counts)}",
        "They were selected by their failures or findings: shares among them say nothing of how often a classifier "
        "fails.",
        "## Findings",
        "\n".join(findings) or "The run has no findings.",
        "An image has the tag of each finding that it is part of.",
        "## Loading it",
        loading.strip(),
        "## How it came about",
        f"```yaml\n{yaml.safe_dump(dict(images.about), sort_keys=False, allow_unicode=True, width=120)}```",
    ]
    head = f"---\n{yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True, width=120)}---\n\n" if front else ""
    return (head + "\n\n".join(parts) + "\n").encode()


def _place(counts: Counted) -> str:
    if counts.copied == counts.images:
        return "Their files are copies, inside this folder."
    if not counts.copied:
        return "Their files lie where the run read them, and are not copied."
    n_copied = words.count(counts.copied)
    return f"The files of {n_copied} are copies, inside this folder; the others lie where the run read them."


def _line(text: str) -> str:
    return " ".join(text.split())


# The features of Hugging Face's `datasets` as its Parquet metadata and its cards have them, from Arrow's types.


IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
"""The type of a column of images."""


def feature(kind: pa.DataType) -> Any:
    """Returns a feature as `datasets` keeps it in Parquet's metadata, in the form that every release since 2.0
    reads."""
    if pa.types.is_list(kind):
        if pa.types.is_struct(kind.value_type):
            return [feature(kind.value_type)]
        return {"feature": feature(kind.value_type), "_type": "Sequence"}
    if pa.types.is_struct(kind):
        return {field.name: feature(field.type) for field in kind}
    return {"dtype": _dtype(kind), "_type": "Value"}


def yaml_feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        if pa.types.is_struct(kind.value_type):
            return {"list": [{"name": field.name, **yaml_feature(field.type)} for field in kind.value_type]}
        return {"sequence": _dtype(kind.value_type)}
    return {"dtype": _dtype(kind)}


def _dtype(kind: pa.DataType) -> str:
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))


# COCO: images, categories and an annotation of the whole image for each label, and results for each classifier.


Entry = dict[str, Any]


def write_coco(images: RunImages, folder: Folder) -> Counted:
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


# FiftyOne: a LegacyFiftyOneDataset of a run's images, with tags, every classifier's prediction, and views to save.


def write_fiftyone(images: RunImages, folder: Folder) -> Counted:
    counts, labels, fields = Counted(), set[str](), dict[str, str]()
    with folder.open("samples.json") as stream:
        stream.write(b'{"samples": [')
        for row in images.rows():
            path, _ = placed(row, folder, counts)
            for prediction in row["predictions"]:
                fields.setdefault(prediction["classifier"], field_name(prediction["classifier"], len(fields)))
                labels.add(prediction["label"])
            labels.add(row["truth"])
            stream.write((b",\n" if counts.images > 1 else b"\n") + json_line(sample(row, path, fields)).rstrip())
        stream.write(b"\n]}\n")
    metadata = {"info": dict(images.about), "default_classes": sorted(filter(None, labels))}
    folder.put("metadata.json", json_line(metadata))
    views = [
        {
            "name": finding.tag if not finding.classifier else f"{finding.tag} ({finding.classifier})",
            "description": finding.sentence,
            "tag": finding.tag,
            "field": fields.get(finding.classifier),
        }
        for finding in images.findings
    ]
    folder.put("views.json", json_line({"views": views}))
    folder.put("README.md", readme(images, counts, FIFTYONE_LOADING))
    return counts


def sample(row: Row, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns a sample. A prediction without a label has no place in FiftyOne, and is left out."""
    result: dict[str, Any] = {"filepath": path, "tags": row["tags"], "image_id": row["image_id"], "cells": row["cells"]}
    result |= {name: row[name] for name in ("key", "text") if row[name] is not None}
    if row["truth"] is not None:
        result["ground_truth"] = {"_cls": "Classification", "label": row["truth"]}
    for prediction in row["predictions"]:
        if prediction["label"] is not None:
            result[fields[prediction["classifier"]]] = {
                "_cls": "Classification",
                **{name: prediction[name] for name in ("label", "confidence", "failed")},
            }
    return result


def field_name(classifier: str, number: int) -> str:
    """Returns a name that FiftyOne takes for a field: an identifier; the number tells alike specs apart."""
    return f"predicted_{number}_{re.sub(r'[^0-9a-z]+', '_', classifier.lower()).strip('_')[-60:]}"


FIFTYONE_LOADING = """```python
import json
import fiftyone
from fiftyone import ViewField as F

folder = "PATH OF THIS FOLDER"
dataset = fiftyone.Dataset.from_dir(folder, dataset_type=fiftyone.types.LegacyFiftyOneDataset)
for view in json.load(open(f"{folder}/views.json"))["views"]:
    found = dataset.match_tags(view["tag"])
    found = found.match(F(f"{view['field']}.failed") == True) if view["field"] else found
    dataset.save_view(view["name"], found, description=view["description"])
fiftyone.launch_app(dataset)
```
"""


# Hugging Face `datasets`: Parquet files with an Image feature, and a dataset card.


GROUP_ROWS, FILE_BYTES = 100, 256 * 2**20
_KINDS = {"image": IMAGE} | {one.name: one.type for one in EXPORTED_IMAGES if one.name not in ("bytes", "location")}


def write_huggingface(images: RunImages, folder: Folder) -> Counted:
    counts, size, number = Counted(), 0, 0
    features = {name: {"_type": "Image"} if name == "image" else feature(kind) for name, kind in _KINDS.items()}
    schema = pa.schema(list(_KINDS.items()), {b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    compression = {name: "none" if name == "image" else "zstd" for name in _KINDS}
    rows = images.rows(with_bytes=True)
    group = _group(rows)
    while group:
        with (
            folder.open(f"data/train-{number:05d}.parquet") as stream,
            pq.ParquetWriter(stream, schema, compression=compression) as writer,
        ):
            while group and stream.tell() < FILE_BYTES:
                writer.write_table(pa.Table.from_pylist([_record(row) for row in group], schema))
                counts.images, counts.copied = counts.images + len(group), counts.copied + len(group)
                group = _group(rows)
            size += stream.tell()
        number += 1
    split = {"name": "train", "num_bytes": size, "num_examples": counts.images}
    feature_rows: list[dict[str, Any]] = [
        {"name": name, **({"dtype": "image"} if name == "image" else yaml_feature(kind))}
        for name, kind in _KINDS.items()
    ]
    front = {
        "pretty_name": images.title,
        "task_categories": ["image-classification"],
        "tags": ["c2b-ray", "classifier-failures"],
        "dataset_info": {"features": feature_rows, "splits": [split], "download_size": size, "dataset_size": size},
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}],
    }
    folder.put("README.md", readme(images, counts, HUGGINGFACE_LOADING, front))
    return counts


def _group(rows: Iterator[Row]) -> list[Row]:
    return list(islice(rows, GROUP_ROWS))


def _record(row: Row) -> dict[str, Any]:
    path = f"{file_name(row['image_id'])}.{extension(row['bytes'])}"
    return {**{name: row[name] for name in _KINDS if name != "image"}, "image": {"bytes": row["bytes"], "path": path}}


HUGGINGFACE_LOADING = """```python
import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")
dataset[0]["image"], dataset[0]["truth"], dataset[0]["predictions"]
```
"""


# Label Studio: a task per image, with every classifier's answer as a prediction, and the labelling configuration.


LOCAL = "/data/local-files/?d="


def write_label_studio(images: RunImages, folder: Folder) -> Counted:
    counts, labels = Counted(), set[str]()
    with folder.open("tasks.json") as stream:
        stream.write(b"[")
        for row in images.rows():
            path, _ = placed(row, folder, counts)
            labels.update(prediction["label"] for prediction in row["predictions"] if prediction["label"] is not None)
            labels.update([row["truth"]] if row["truth"] is not None else [])
            stream.write((b",\n" if counts.images > 1 else b"\n") + json_line(task(row, path, images.root)).rstrip())
        stream.write(b"\n]\n")
    folder.put("label_config.xml", label_config(sorted(labels)))
    folder.put("README.md", readme(images, counts, _label_studio_loading(images, counts)))
    return counts


def task(row: Row, path: str, root: str) -> dict[str, Any]:
    url = path if is_remote(path) or "://" in path else f"{LOCAL}{quote(below(path, root))}"
    row_facts = {"truth": row["truth"] or "", "text": row["text"] or "", "findings": ", ".join(row["tags"])}
    return {
        "data": {
            "image": url,
            "image_id": row["image_id"],
            "key": row["key"] or "",
            "cells": row["cells"],
            **row_facts,
        },
        "predictions": [
            {
                "model_version": prediction["classifier"],
                **({} if prediction["confidence"] is None else {"score": prediction["confidence"]}),
                "result": [
                    {
                        "from_name": "label",
                        "to_name": "image",
                        "type": "choices",
                        "value": {"choices": [prediction["label"]]},
                    }
                ],
            }
            for prediction in row["predictions"]
            if prediction["label"] is not None
        ],
    }


def label_config(labels: list[str]) -> bytes:
    """Returns the interface: the image, its label, what it was made from, and a choice among `labels`."""
    view = ET.Element("View")
    ET.SubElement(view, "Image", {"name": "image", "value": "$image"})
    ET.SubElement(view, "Text", {"name": "truth", "value": "$truth"})
    ET.SubElement(view, "Text", {"name": "findings", "value": "$findings"})
    choices = ET.SubElement(view, "Choices", {"name": "label", "toName": "image", "choice": "single"})
    for label in labels:
        ET.SubElement(choices, "Choice", {"value": label})
    ET.indent(view)
    return bytes(ET.tostring(view, encoding="utf-8")) + b"\n"


def _label_studio_loading(images: RunImages, counts: Counted) -> str:
    root = images.root if counts.copied < counts.images else "THE PATH OF THIS FOLDER"
    return f"""Make a project with `label_config.xml` as its labelling interface, and import `tasks.json`.

Images of this machine are served below one folder. Before Label Studio starts:

```sh
export LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true
export LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT="{root}"
```

and in the project add a source storage of local files, whose path is a folder below that root.
"""
