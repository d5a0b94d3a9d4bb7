"""Label Studio: a task per image, with every classifier's answer as a prediction, and the labelling configuration.

    OUT/tasks.json           to import into a project
    OUT/label_config.xml     the project's labelling interface: one choice among the labels
    OUT/images/              images that lie nowhere as files

Images on this machine are named as Label Studio serves local files: relative to a folder that README.md tells it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import quote

from c2b_ray.report.formats.folder import Folder, json_line
from c2b_ray.report.formats.images import Counted, Row, RunImages, below, placed
from c2b_ray.report.formats.readme import readme
from c2b_ray.storage import is_remote

LOCAL = "/data/local-files/?d="


def write(images: RunImages, folder: Folder) -> Counted:
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
    folder.put("README.md", readme(images, counts, _loading(images, counts)))
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


def _loading(images: RunImages, counts: Counted) -> str:
    root = images.root if counts.copied < counts.images else "THE PATH OF THIS FOLDER"
    return f"""Make a project with `label_config.xml` as its labelling interface, and import `tasks.json`.

Images of this machine are served below one folder. Before Label Studio starts:

```sh
export LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true
export LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT="{root}"
```

and in the project add a source storage of local files, whose path is a folder below that root.
"""
