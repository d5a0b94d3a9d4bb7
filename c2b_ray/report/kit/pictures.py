"""Some rows of a run's large tables, such as the bytes of a few images, without reading the others into memory.

Knows how a run keeps its tables; knows nothing of what pictures show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import SourceError
from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.patience import open_input
from c2b_ray.filesystems.sealed import Sealed
from c2b_ray.store import files
from c2b_ray.store.run import Run


def read_pictures(run: Run, image_ids: Sequence[str]) -> dict[str, bytes]:
    """Returns the encoded bytes of the existing images; ids of images without bytes are left out."""
    pictures: dict[str, bytes] = {}
    for rows in chosen_rows(run, "images", "image_id", image_ids, ["image_id", "bytes"]):
        rows = rows.filter(pc.is_valid(rows["bytes"]))
        pictures.update(zip(rows["image_id"].to_pylist(), rows["bytes"].to_pylist(), strict=True))
    return pictures


def chosen_rows(
    run: Run, table: str, id_column: str, wanted: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yields the rows with a wanted id, one row group at a time."""
    if not wanted or not run.has(table):
        return
    ids = pa.array(wanted, pa.string())
    for location in _locations(run, table):
        filesystem, path = resolve(location)
        with files.reading(location), open_input(filesystem, path) as stream:
            try:
                yield from _chosen(Sealed(stream), id_column, ids, list(columns))
            except pa.ArrowException as error:
                raise SourceError(
                    f"{location} is damaged ({error}); delete it and run the {run.kind.command} again"
                ) from error


def _locations(run: Run, table: str) -> list[str]:
    if not run.in_parts(table):
        return [run.location(f"{table}.parquet")]
    names = files.entries(run.location(table))
    return [run.location(f"{table}/{name}") for name in names if name.startswith("part-") and name.endswith(".parquet")]


def _chosen(part: Sealed, id_column: str, wanted: pa.Array, columns: list[str]) -> Iterator[pa.Table]:
    for group in range(part.metadata.num_row_groups):
        ids = part.read_groups([group], [id_column])[id_column]
        if pc.any(pc.is_in(ids, wanted)).as_py():
            rows = part.read_groups([group], columns)
            yield rows.filter(pc.is_in(rows[id_column], wanted))
