"""The bytes of a few images of a run, without reading the others into memory.

Knows where a run keeps its images; knows nothing of what they show.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import SourceError
from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.sealed import Sealed
from c2b_ray.store import files
from c2b_ray.store.run import Run


def read_pictures(run: Run, image_ids: Sequence[str]) -> dict[str, bytes]:
    """The encoded bytes of the images that are there; ids of images without bytes are left out."""
    wanted = pa.array(image_ids, pa.string())
    pictures: dict[str, bytes] = {}
    if not image_ids:
        return pictures
    filesystem, path = resolve(run.location("images"))
    for name in files.entries(run.location("images")):
        if name.startswith("part-") and name.endswith(".parquet"):
            with files.reading(run.location("images")), filesystem.open_input_file(f"{path}/{name}") as stream:
                try:
                    _read_part(Sealed(stream), wanted, pictures)
                except pa.ArrowException as error:
                    location = run.location(f"images/{name}")
                    raise SourceError(
                        f"{location} is damaged ({error}); delete it and run the c2b audit again"
                    ) from error
    return pictures


def _read_part(part: Sealed, wanted: pa.Array, pictures: dict[str, bytes]) -> None:
    for group in range(part.metadata.num_row_groups):
        ids = part.read_groups([group], ["image_id"])["image_id"]
        if not pc.any(pc.is_in(ids, wanted)).as_py():
            continue
        rows = part.read_groups([group], ["image_id", "bytes"])
        chosen = rows.filter(pc.and_(pc.is_in(rows["image_id"], wanted), pc.is_valid(rows["bytes"])))
        pictures.update(zip(chosen["image_id"].to_pylist(), chosen["bytes"].to_pylist(), strict=True))
