"""FiftyOne: a LegacyFiftyOneDataset of a run's images, with tags, every classifier's prediction, and views to save.

    OUT/samples.json, OUT/metadata.json    what fiftyone.Dataset.from_dir reads
    OUT/views.json                         a view for each finding: its name, tag, and the predictions that failed
    OUT/images/                            images that lie nowhere as files

The current FiftyOneDataset is a dump of FiftyOne's database at one version of it; the legacy one is read by all. It has
no place for saved views, so README.md has the five lines that make them of views.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from c2b_ray.report.formats.folder import Folder, json_line
from c2b_ray.report.formats.images import Counted, Row, RunImages, placed
from c2b_ray.report.formats.readme import readme


def write(images: RunImages, folder: Folder) -> Counted:
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
    folder.put("README.md", readme(images, counts, LOADING))
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


LOADING = """```python
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
