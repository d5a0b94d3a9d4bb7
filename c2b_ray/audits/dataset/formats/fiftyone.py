"""FiftyOne: images below data/, and their labels twice, for two of its types.

    OUT/data/IMAGE_ID.png
    OUT/samples.json, OUT/metadata.json    fiftyone.types.LegacyFiftyOneDataset: ground truth, the answer of every
                                           classifier with its confidence, and the other columns of an image
    OUT/labels.json                        fiftyone.types.FiftyOneImageClassificationDataset: only the ground truth

The current FiftyOneDataset is a dump of FiftyOne's database at one version of it; these two are read by all versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.dataset.formats import huggingface
from c2b_ray.audits.dataset.formats.kit import ExportedFiles, ExportedRows, record
from c2b_ray.report.formats.folder import WORK, Folder, extension, file_name, json_line
from c2b_ray.report.redact import cleaned

_PLAIN = (
    "caption",
    "prompt",
    "seed",
    "generator",
    "rule",
    "kept_because",
    "verified",
    "caption_number",
    "draw",
    "key",
    "fingerprint",
)


@dataclass(frozen=True)
class FiftyOne:
    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        rows = size = 0
        with folder.open(_part("samples", number)) as samples, folder.open(_part("labels", number)) as labels:
            for table in tables:
                for row in table.to_pylist():
                    key = file_name(row["image_id"])
                    name = f"data/{key}.{extension(row['image'])}"
                    folder.put(name, row["image"])
                    samples.write(json_line(sample(row, name)))
                    labels.write(f"{json.dumps(key)}: {self.labels.index(row['label'])}\n".encode())
                    rows, size = rows + 1, size + len(row["image"])
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        _joined(folder, "samples.json", '{"samples": [', "]}", [_part("samples", number) for number in about.files])
        head = f'{{"classes": {json.dumps(list(self.labels))}, "labels": {{'
        _joined(folder, "labels.json", head, "}}", [_part("labels", number) for number in about.files])
        metadata = {
            "info": {"config": cleaned(dict(about.config)), "rows": about.rows},
            "default_classes": list(self.labels),
        }
        folder.put("metadata.json", json_line(metadata))
        folder.put("README.md", huggingface.text(about, {}, LOADING).encode())


def sample(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a sample of FiftyOne. An undecided answer has no label and is left out."""
    fields = record(row)
    result = {"filepath": name, "tags": [], "ground_truth": {"_cls": "Classification", "label": row["label"]}}
    result |= {column: fields[column] for column in _PLAIN} | {"image_id": row["image_id"]}
    used_fields = set(result)
    for number, answer in enumerate(row["answers"]):
        # Field names are identifiers; the number tells specs with the same identifier apart.
        field = f"predicted_{number}_{re.sub(r'[^0-9a-z]+', '_', answer['classifier'].lower()).strip('_')[-60:]}"
        if answer["predicted"] is not None and field not in used_fields:
            likeliest = float(answer["probabilities"][0]) if answer["probabilities"] else None
            result[field] = {
                "_cls": "Classification",
                "label": answer["predicted"],
                "confidence": likeliest,
                "failed": answer["failed"],
            }
    return result


def _part(kind: str, number: int) -> str:
    return f"{WORK}/{kind}-{number:06d}.txt"


def _joined(folder: Folder, name: str, head: str, tail: str, parts: Iterable[str]) -> None:
    """Writes one JSON document from the parts' lines; only a line of it is in memory."""
    with folder.open(name) as stream:
        stream.write(head.encode())
        for number, line in enumerate(folder.lines(parts)):
            stream.write((b",\n" if number else b"\n") + line)
        stream.write(f"\n{tail}\n".encode())


LOADING = """```python
import fiftyone
dataset = fiftyone.Dataset.from_dir("PATH OF THIS FOLDER", dataset_type=fiftyone.types.LegacyFiftyOneDataset)
fiftyone.launch_app(dataset)
```
"""
