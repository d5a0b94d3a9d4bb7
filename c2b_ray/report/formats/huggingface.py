"""Hugging Face `datasets`: Parquet files with an Image feature, and a dataset card.

OUT/data/train-00000.parquet …    images with their bytes, whether or not they lie as files elsewhere
OUT/README.md                     the card; its YAML names the files and the features
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.report.formats.features import IMAGE, feature, yaml_feature
from c2b_ray.report.formats.folder import Folder, extension, file_name
from c2b_ray.report.formats.images import Counted, Row, RunImages
from c2b_ray.report.formats.readme import readme
from c2b_ray.tables.exported import EXPORTED_IMAGES

GROUP_ROWS, FILE_BYTES = 100, 256 * 2**20
_KINDS = {"image": IMAGE} | {one.name: one.type for one in EXPORTED_IMAGES if one.name not in ("bytes", "location")}


def write(images: RunImages, folder: Folder) -> Counted:
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
    folder.put("README.md", readme(images, counts, LOADING, front))
    return counts


def _group(rows: Iterator[Row]) -> list[Row]:
    return list(islice(rows, GROUP_ROWS))


def _record(row: Row) -> dict[str, Any]:
    path = f"{file_name(row['image_id'])}.{extension(row['bytes'])}"
    return {**{name: row[name] for name in _KINDS if name != "image"}, "image": {"bytes": row["bytes"], "path": path}}


LOADING = """```python
import datasets
dataset = datasets.load_dataset("PATH OF THIS FOLDER", split="train")
dataset[0]["image"], dataset[0]["truth"], dataset[0]["predictions"]
```
"""
