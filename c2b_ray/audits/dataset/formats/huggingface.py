"""Hugging Face datasets: Parquet files with Image and ClassLabel features, and a dataset card.

    OUT/data/train-00000-of-00012.parquet
    OUT/README.md                            the card; its YAML lists the files, the features and the number of rows

`load_dataset(OUT)` returns one split, `train`: every loader uses this name for a single unnamed split.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.audits.dataset.formats import card
from c2b_ray.audits.dataset.formats.kit import ExportedFiles, ExportedRows
from c2b_ray.report.formats.features import IMAGE, feature, yaml_feature
from c2b_ray.report.formats.folder import Folder, extension, file_name
from c2b_ray.tables.dataset import DATASET_ROWS

LABEL = "label"


@dataclass(frozen=True)
class HuggingFace:
    labels: tuple[str, ...]
    total: int  # files

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        numbers = {label: position for position, label in enumerate(self.labels)}
        rows = 0
        schema = self._schema()
        with (
            folder.open(self.name(number)) as stream,
            pq.ParquetWriter(stream, schema, compression=_compression()) as writer,
        ):
            for table in tables:  # a row group for each: readers then take an image without its thousand neighbours
                writer.write_table(_converted(table, numbers, schema))
                rows += table.num_rows
            size = stream.tell()
        return ExportedFiles(rows, size)

    def name(self, number: int) -> str:
        return f"data/train-{number:05d}-of-{self.total:05d}.parquet"

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        split = {"name": "train", "num_bytes": about.bytes, "num_examples": about.rows}
        info = {"features": self._yaml(), "splits": [split], "download_size": about.bytes, "dataset_size": about.bytes}
        configs = [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}]
        folder.put("README.md", card.text(about, {"dataset_info": info, "configs": configs}, LOADING).encode())

    def _schema(self) -> pa.Schema:
        fields = []
        for column in DATASET_ROWS:
            kind = {"image": IMAGE, LABEL: pa.int64()}.get(column.name, column.type)
            fields.append(pa.field(column.name, kind))
        features = {field.name: feature(field.type) for field in DATASET_ROWS}
        features |= {"image": {"_type": "Image"}, LABEL: {"names": list(self.labels), "_type": "ClassLabel"}}
        return pa.schema(fields, {b"huggingface": json.dumps({"info": {"features": features}}).encode()})

    def _yaml(self) -> list[dict[str, Any]]:
        names = {str(number): label for number, label in enumerate(self.labels)}
        special: dict[str, dict[str, Any]] = {
            "image": {"dtype": "image"},
            LABEL: {"dtype": {"class_label": {"names": names}}},
        }
        return [{"name": field.name, **(special.get(field.name) or yaml_feature(field.type))} for field in DATASET_ROWS]


def _compression() -> dict[str, str]:
    """Leaves encoded images uncompressed: they do not shrink."""
    return {field.name: "none" if field.name == "image" else "zstd" for field in DATASET_ROWS}


def _converted(table: pa.Table, numbers: dict[str, int], schema: pa.Schema) -> pa.Table:
    images = [
        {"bytes": image, "path": f"{file_name(name)}.{extension(image)}"}
        for image, name in zip(table["image"].to_pylist(), table["image_id"].to_pylist(), strict=True)
    ]
    columns = {name: table[name] for name in table.column_names}
    columns["image"] = pa.array(images, IMAGE)
    columns[LABEL] = pa.array([numbers[label] for label in table[LABEL].to_pylist()], pa.int64())
    return pa.table([columns[name] for name in schema.names], schema=schema)


LOADING = """```python
import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")
dataset[0]["image"], dataset.features["label"].int2str(dataset[0]["label"])
```
"""
