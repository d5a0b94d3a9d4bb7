"""Tables that need not fit in memory: read a file at a time, written a table at a time, counted by their footers.

It knows files and Parquet, not their content. Files are written atomically, as in `files`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import fs

from c2b_ray.filesystems import resolve, sealed
from c2b_ray.filesystems.patience import open_input, patiently
from c2b_ray.store import files

_READ_AT_ONCE = 2**20


def read_parts(location: str | Path, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Like `read_table`, but yields a file at a time, or a row group of a large file."""
    for path in files.table_files(location):
        groups = files.parquet(path, lambda file: int(file.metadata.num_row_groups))
        if groups < 2:
            yield files.parquet(path, lambda file: file.read(columns))
        else:
            yield from (files.parquet(path, group_reader(number, columns)) for number in range(groups))


def group_reader(number: int, columns: Sequence[str] | None) -> Callable[[sealed.Sealed], pa.Table]:
    """Returns what reads a row group of an open file."""
    return lambda file: file.read_groups([number], columns)


def count_rows(location: str | Path) -> int:
    """Returns the number of rows that `read_table` would read, without reading them."""
    return sum(files.parquet(path, lambda file: int(file.metadata.num_rows)) for path in files.table_files(location))


def write_tables(
    location: str | Path, schema: pa.Schema, tables: Iterable[pa.Table], replacing: Callable[[], None]
) -> None:
    """Like `write_table`, for many tables, of which only one is in memory at a time.

    A file that has these bytes already is kept. Otherwise `replacing` is called before the file is replaced.
    """
    filesystem, path = resolve(location)
    local = isinstance(filesystem, fs.LocalFileSystem)
    with ExitStack() as stack:
        folder = None if local else stack.enter_context(TemporaryDirectory())
        temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}" if local else f"{folder}/table"
        stack.callback(Path(temporary).unlink, missing_ok=True)
        with files.refusals(location):
            sealed.write(temporary, schema, tables, compression="zstd")
            if files.exists(location) and same(location, temporary):
                return
            replacing()
            if local:
                os.replace(temporary, path)
            else:
                patiently(location, lambda: fs.copy_files(temporary, path, fs.LocalFileSystem(), filesystem))


def same(location: str | Path, other: str | Path) -> bool:
    """Returns whether two files have the same bytes."""
    if files.size(location) != files.size(other):
        return False
    streams = []
    for file in (location, other):
        with files.reading(file):
            streams.append(open_input(*resolve(file)))
    with streams[0], streams[1]:
        while True:
            one, two = (stream.read(_READ_AT_ONCE) for stream in streams)
            if one != two:
                return False
            if not one:
                return True
