"""Scenes as a labelled table: one Parquet file from which an index is built, or which an audit reads directly.

It knows scenes and the columns of a labelled table; it knows no models.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.steps.generate import png
from c2b_ray.storage import files
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, Scene, sample

ROWS_PER_GROUP = 1024


def labelled_table(scenes: list[Scene], prefix: str = "scene") -> pa.Table:
    """Returns a row per scene: `key`, `image` (PNG bytes), `target_class` and a column per attribute."""
    columns: dict[str, pa.Array] = {
        "key": pa.array([f"{prefix}-{i:06d}" for i in range(len(scenes))]),
        "image": pa.array([picture(scene) for scene in scenes], pa.binary()),
        "target_class": pa.array([scene.target_class for scene in scenes]),
    }
    for name in ATTRIBUTES:
        columns[name] = pa.array([scene.attribute(name) for scene in scenes])
    return pa.table(columns)


def picture(scene: Scene) -> bytes:
    return png(render(scene), level=1)


def write_sample(path: str | Path, n: int, seed: int) -> None:
    """Writes `n` uniformly sampled scenes as one Parquet file, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(labelled_table(sample(n, seed), f"scene-{seed}"), sink, row_group_size=ROWS_PER_GROUP)
    files.write_under(path, sink.getvalue().to_pybytes())
