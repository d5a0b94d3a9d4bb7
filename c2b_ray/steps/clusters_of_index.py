"""The cluster of each image of an index, such as its camera, from the metadata that the index keeps of it.

It knows no vectors, and reads no image.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.roles import ImageIndex
from c2b_ray.schemas import CLUSTERS

FOLDER = "folder"
"""Clusters by the folder in an image's key, unless its metadata has a column of this name."""
AT_ONCE = 16_384


def check_clusters_of_index(open_index: Callable[[], ImageIndex], name: str, field: str = "images.cluster") -> None:
    """Raises ConfigError, about `field`, where the index's first image has no column `name`: all have the same ones."""
    columns = _columns(open_index(), [0])[0][1]
    if name not in columns and name != FOLDER:
        raise ConfigError(
            field,
            f"the index's images have no column {name!r} (`c2b index build` keeps all columns of its source); "
            f"{nearest(name, [*columns, FOLDER])}",
        )


def clusters_of_index(
    open_index: Callable[[], ImageIndex], images: pa.Table, name: str, field: str = "images.cluster"
) -> pa.Table:
    """Returns a table of `schemas.CLUSTERS`, a row per row of `images` (`image_id`, `row` in the index).

    name: a column of the source that the index was built from, or `folder`. The cluster is null where an image has no
    value: none, an empty text, or NaN.
    Raises ConfigError, about `field`, where none of the images has a value.
    """
    index = open_index()
    rows, clusters = images["row"].to_pylist(), list[str | None]()
    for start in range(0, len(rows), AT_ONCE):
        for key, columns in _columns(index, rows[start : start + AT_ONCE]):
            clusters.append(_folder(key) if name == FOLDER and name not in columns else _as_text(columns.get(name)))
    if clusters and all(cluster is None for cluster in clusters):
        raise ConfigError(field, f"none of {len(clusters):,} images of the index has a {name}; name another column")
    return pa.table({"image_id": images["image_id"], "cluster": pa.array(clusters, pa.string())}).cast(CLUSTERS)


def _columns(index: ImageIndex, rows: list[int]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the key of each image, and its source's columns."""
    known = index.metadata(rows)
    texts = known["metadata"].to_pylist() if "metadata" in known.column_names else [None] * known.num_rows
    return [(key, json.loads(text or "{}")) for key, text in zip(known["key"].to_pylist(), texts, strict=True)]


def _as_text(value: object) -> str | None:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _folder(key: str) -> str | None:
    return key.rpartition("/")[0] or None
