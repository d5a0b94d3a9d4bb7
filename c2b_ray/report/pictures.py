"""The bytes of a few images of a run, without reading the others into memory.

Knows where a run keeps its images; knows nothing of what they show.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.filesystems import resolve
from c2b_ray.store import files
from c2b_ray.store.run import Run

_BATCH = 64  # rows in memory at a time


def read_pictures(run: Run, image_ids: Sequence[str]) -> dict[str, bytes]:
    """The encoded bytes of the images that are there; ids of images without bytes are left out."""
    wanted = pa.array(image_ids, pa.string())
    found: dict[str, bytes] = {}
    if not image_ids:
        return found
    filesystem, path = resolve(run.location("images"))
    for name in files.entries(run.location("images")):
        if name.startswith("part-") and name.endswith(".parquet"):
            with files.reading(run.location("images")), filesystem.open_input_file(f"{path}/{name}") as stream:
                _read_part(pq.ParquetFile(stream), wanted, found)
    return found


def _read_part(part: pq.ParquetFile, wanted: pa.Array, found: dict[str, bytes]) -> None:
    for group in range(part.num_row_groups):
        ids = part.read_row_group(group, columns=["image_id"])["image_id"]
        if not pc.any(pc.is_in(ids, wanted)).as_py():
            continue
        for batch in part.iter_batches(_BATCH, row_groups=[group], columns=["image_id", "bytes"]):
            chosen = batch.filter(pc.and_(pc.is_in(batch["image_id"], wanted), pc.is_valid(batch["bytes"])))
            found.update(zip(chosen["image_id"].to_pylist(), chosen["bytes"].to_pylist(), strict=True))
