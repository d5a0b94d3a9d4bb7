"""ImageFolder: a folder for each label, as torchvision and Hugging Face read it, and metadata.jsonl beside them.

    OUT/LABEL/IMAGE_ID.png    the image as it is; GIF, AVIF and HEIC as PNG: torchvision's ImageFolder passes them over
    OUT/metadata.jsonl        file_name, and the other columns of the image
    OUT/README.md             so that load_dataset(OUT) makes one split of all folders, whatever the labels are called

Hugging Face's loader takes folders with names like `bullet train` for a split unless its README says which files belong
together.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.audits.dataset.formats import huggingface
from c2b_ray.audits.dataset.formats.kit import ExportedFiles, ExportedRows, record
from c2b_ray.audits.dataset.steps.shard import PNG_LEVEL
from c2b_ray.report.formats.folder import WORK, Folder, extension, file_name, folder_names, json_line
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import png
from c2b_ray.storage import THREADS, is_remote

_PASSED_OVER = ("gif", "avif", "heic")


@dataclass(frozen=True)
class ImageFolder:
    labels: tuple[str, ...]

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        folders = folder_names(self.labels)
        rows = size = 0
        with (
            folder.open(part_name(number)) as metadata,
            ThreadPoolExecutor(THREADS if is_remote(folder.location) else 1) as pool,  # a store answers slowly
        ):
            for table in tables:
                images = []
                for row in table.to_pylist():
                    image = _readable(row["image"])
                    name = f"{folders[row['label']]}/{file_name(row['image_id'])}.{extension(image)}"
                    images.append((name, image))
                    metadata.write(json_line({"file_name": name} | record(row)))
                    rows, size = rows + 1, size + len(image)
                list(pool.map(lambda image: folder.put(*image), images))
        return ExportedFiles(rows, size)

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        with folder.open("metadata.jsonl") as metadata:
            for line in folder.lines(map(part_name, about.files)):
                metadata.write(line + b"\n")
        folders = sorted(folder_names(self.labels).values())
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": ["metadata.jsonl", "*/*"]}]}]
        folder.put(
            "README.md", huggingface.text(about, {"configs": configs}, LOADING.format(folders=len(folders))).encode()
        )


def _readable(image: bytes) -> bytes:
    """Returns the image in a format that torchvision's ImageFolder reads, with the same pixels."""
    return png(decode(image), PNG_LEVEL) if extension(image) in _PASSED_OVER else image


def part_name(number: int) -> str:
    return f"{WORK}/metadata-{number:06d}.jsonl"


LOADING = """```python
import torchvision
dataset = torchvision.datasets.ImageFolder("PATH OF THIS FOLDER")  # {folders} labels

import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")  # with everything of metadata.jsonl
```
"""
