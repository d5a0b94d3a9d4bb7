"""WebDataset: tar shards whose members are grouped by key, readable in sequence and from object stores.

    OUT/shard-000000.tar    KEY.png   the image as it is; .jpg and so on, by its format
                            KEY.cls   the label's number
                            KEY.json  the other columns of the image
    OUT/labels.json         the labels in the order of their numbers
    OUT/README.md

The same rows make the same bytes: members carry no times and no owners.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa

from c2b_ray.audits.dataset.formats import huggingface
from c2b_ray.audits.dataset.formats.kit import ExportedFiles, ExportedRows, record
from c2b_ray.report.formats.folder import Folder, extension, file_name, json_line


@dataclass(frozen=True)
class WebDataset:
    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        numbers = {label: position for position, label in enumerate(self.labels)}
        rows = size = 0
        with (
            folder.open(shard_name(number)) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for table in tables:
                for row in table.to_pylist():
                    key = file_name(row["image_id"]).replace(".", "_")  # a key ends at its first dot
                    members = ((extension(row["image"]), row["image"]), ("cls", str(numbers[row["label"]]).encode()))
                    for suffix, data in (*members, ("json", json_line(record(row)))):
                        member = tarfile.TarInfo(f"{key}.{suffix}")
                        member.size, member.mode = len(data), 0o644
                        tar.addfile(member, BytesIO(data))
                    rows, size = rows + 1, size + len(row["image"])
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        folder.put("labels.json", json.dumps(list(self.labels), ensure_ascii=False, indent=1).encode() + b"\n")
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": "*.tar"}]}]
        last = max(about.files, default=0)
        loading = LOADING.format(shards=f"shard-{{000000..{last:06d}}}.tar")
        folder.put("README.md", huggingface.text(about, {"configs": configs}, loading).encode())


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.tar"


LOADING = """```python
import PIL.Image
import webdataset
dataset = webdataset.WebDataset("PATH OF THIS FOLDER/{shards}").decode("pil")
for sample in dataset:
    image = next(value for value in sample.values() if isinstance(value, PIL.Image.Image))
    sample["cls"], sample["json"]
```

An image is called by its format, `png` or `jpg`. `cls` is the label's number in labels.json.
"""
