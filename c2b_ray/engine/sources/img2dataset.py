"""Recognises what img2dataset wrote: for each shard `00000.parquet` with a row for each address, and the images in
`00000.tar`, in a folder `00000/`, or in the table itself.

It knows its columns, and counts the rows of which there is no image. Other kinds of sources read the images.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.engine.sources.files import Location
from c2b_ray.engine.sources.parquet_tables import Damaged
from c2b_ray.storage.folders import OmittedRows

COLUMNS = {"key", "status", "url"}
"""Columns that each of its tables has."""
_SHARD = re.compile(r"(?:.*/)?\d+\.parquet$")


def is_img2dataset(location: Location, tables: Sequence[str], others: Sequence[str]) -> bool:
    """Returns whether the tables are img2dataset's, of images in shards or folders of the same names (`others`)."""
    stems = {name.removesuffix(".parquet") for name in tables}
    named = {name.split(".", 1)[0] for name in others} | {name.rpartition("/")[0] for name in others}
    return bool(tables) and all(map(_SHARD.match, tables)) and bool(stems & named) and _has_columns(location, tables[0])


def failed(location: Location, tables: Sequence[str]) -> OmittedRows:
    """Counts the rows of which there is no image, by their status."""
    counts: Counter[str] = Counter()
    left_out = OmittedRows()
    for name in tables:
        try:
            with location.open(name) as stream:
                status = pq.ParquetFile(stream).read(["status"])["status"]
        except Damaged:
            left_out.add("table of img2dataset that cannot be read, so that its failed rows are not counted", name)
            continue
        for row in pc.value_counts(status).to_pylist():
            counts[str(row["values"])] += row["counts"]
    for status, count in sorted(counts.items()):
        if status != "success":
            left_out.add(f"row of img2dataset without an image (status {status})", count=count)
    return left_out


def _has_columns(location: Location, table: str) -> bool:
    try:
        with location.open(table) as stream:
            return set(pq.ParquetFile(stream).schema_arrow.names) >= COLUMNS
    except Damaged:
        return False
