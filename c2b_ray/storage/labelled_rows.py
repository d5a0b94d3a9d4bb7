"""Reads labels in several formats: rows, unconverted columns, and the image of each row.

    t.csv, t.tsv             text; only an empty field is null
    t.parquet                and folders of Parquet files, as Hugging Face datasets are published
    DIR with *.arrow         as Hugging Face's `save_to_disk` writes
    DIR/class/*.jpg          an image folder, with metadata.csv or metadata.jsonl if images have attributes

It knows formats, neither the meaning of columns nor which ones are used.
"""

from __future__ import annotations

import os
import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import labelled_folders, resolve
from c2b_ray.storage.folders import OmittedRows, is_hidden
from c2b_ray.storage.s3 import file_info, open_input
from c2b_ray.storage.tables import read_csv, reading

ROWS_AT_ONCE = 16_384
PACKED = b"c2b_ray.packed"
"""The metadata of a Parquet table into which images were packed that lay beside another table (`client.packing`): the
bytes of that table, which the revision includes, so that both are one table of one revision."""
_SPLIT_FILE = re.compile(r"(.+)-\d{5}-of-\d{5}\.parquet$")


class Rows(Protocol):
    """Rows of any format. `folder`: the folder that image paths are relative to. `size`: bytes of the files, which the
    revision includes. `count`: the number of rows. `left_out`: what else is in the file or folder."""

    schema: pa.Schema
    folder: str
    size: int
    count: int
    left_out: OmittedRows

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Returns columns unconverted. A name may be that of a struct's field, as in Parquet."""
        ...

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Like `columns`, but yields some rows at a time."""
        ...

    def images(self, column: str, rows: Sequence[int]) -> list[Any]: ...


class InMemory:
    """A table that is read as a whole."""

    def __init__(
        self,
        table: pa.Table,
        folder: str,
        size: int,
        left_out: OmittedRows | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """`read`: turns a value of the column of images into another one, such as a place in a file into its bytes."""
        self._table, self.schema, self.folder, self.size = table, table.schema, folder, size
        self.count = int(table.num_rows)
        self.left_out, self._read = left_out or OmittedRows(), read

    def columns(self, names: Sequence[str]) -> pa.Table:
        return _named(self._table, names)

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, self.count, ROWS_AT_ONCE):
            yield _named(self._table.slice(start, ROWS_AT_ONCE), names)

    def images(self, column: str, rows: Sequence[int]) -> list[Any]:
        values = [self._table[column][row].as_py() for row in rows]
        return values if self._read is None else [self._read(value) for value in values]


class InParquet:
    """Parquet files with one schema. Callers ask for images in order, so only one row group of images is held. Threads
    of a stage may share it, and read one at a time: a file's reader serves no two at once."""

    def __init__(
        self, files: Sequence[pq.ParquetFile], folder: str, size: int, left_out: OmittedRows | None = None
    ) -> None:
        self._files, self.schema, self.folder, self.size = files, files[0].schema_arrow, folder, size
        self.left_out = left_out or OmittedRows()
        self._groups = [(file, group) for file in files for group in range(file.metadata.num_row_groups)]
        sizes = (file.metadata.row_group(group).num_rows for file, group in self._groups)
        self._ends = list(accumulate(sizes, initial=0))
        self.count = self._ends[-1]
        self._held: tuple[int, pa.ChunkedArray] | None = None
        self._reading = Lock()

    def columns(self, names: Sequence[str]) -> pa.Table:
        with self._reading:
            return _named(pa.concat_tables([file.read(columns=list(names)) for file in self._files]), names)

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for file in self._files:
            batches = file.iter_batches(ROWS_AT_ONCE, columns=list(names), use_threads=False)
            while (batch := self._next(batches)) is not None:
                yield _named(pa.Table.from_batches([batch]), names)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._reading:
            return next(batches, None)

    def images(self, column: str, rows: Sequence[int]) -> list[Any]:
        with self._reading:  # of all rows: between two, another thread would have other row groups read
            return [self._image(column, row) for row in rows]

    def _image(self, column: str, row: int) -> Any:
        number = bisect_right(self._ends, row) - 1
        if self._held is None or self._held[0] != number:
            file, group = self._groups[number]
            self._held = (number, file.read_row_group(group, columns=[column])[column])
        return self._held[1][row - self._ends[number]].as_py()


def open_rows(location: str, field: str) -> Rows:
    """Opens the rows of a file or folder. Raises SourceError if it cannot be read; ConfigError if it is ambiguous."""
    filesystem, path = resolve(location)
    path = path.rstrip("/")
    with reading(location, "a table"):
        info = file_info(filesystem, path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(path)
        if info.type == fs.FileType.Directory:
            return _folder(location, field, filesystem, path)
    folder = posixpath.dirname(path)
    if path.lower().endswith((".csv", ".tsv")):
        table = read_csv(location, filesystem, path, "\t" if path.lower().endswith(".tsv") else ",")
        return InMemory(table, folder, info.size)
    with reading(location, "a Parquet file"):
        file = pq.ParquetFile(open_input(filesystem, path))
        return InParquet([file], folder, _packed_size(file) or info.size)


def _packed_size(file: pq.ParquetFile) -> int:
    """Returns the bytes of the table that a packed one was made from; 0 of any other table."""
    stated = (file.schema_arrow.metadata or {}).get(PACKED, b"")
    return int(stated) if stated.isdigit() and len(stated) <= 18 else 0


def _named(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the columns with these names; a name may be that of a struct's field."""
    result = {}
    for name in names:
        column, _, part = name.partition(".") if name not in table.column_names else (name, "", "")
        result[name] = pc.struct_field(table[column], part) if part else table[column]
    return pa.table(result)


def _folder(location: str, field: str, filesystem: fs.FileSystem, path: str) -> Rows:
    infos = [info for info in file_info(filesystem, fs.FileSelector(path)) if not info.base_name.startswith(".")]
    names = {info.base_name: info for info in infos}
    if "dataset_dict.json" in names:
        splits = sorted(n for n, info in names.items() if info.type == fs.FileType.Directory)
        if not splits:
            raise SourceError(f"{location}: has a dataset_dict.json and none of its splits; copy the dataset again")
        raise ConfigError(field, f"{location} holds several splits; name one, such as {location}/{splits[0]}")
    if "state.json" in names:
        table, size = labelled_folders.read_saved_to_disk(location, filesystem, path)
        return InMemory(table, path, size)
    if parquet := _parquet_files(filesystem, path, infos):
        _refuse_splits(location, field, [info.path for info in parquet])
        if (
            loaded := labelled_folders.read_img2dataset(
                location, filesystem, path, [info.base_name for info in parquet]
            )
        ) is not None:
            return InMemory(loaded.table, path, loaded.size, loaded.left_out, loaded.image)
        with reading(location, "a folder of Parquet files"):
            files = [pq.ParquetFile(open_input(filesystem, info.path)) for info in parquet]
            if any(file.schema_arrow.names != files[0].schema_arrow.names for file in files):
                raise SourceError(f"{location}: its Parquet files have different columns")
            left_out = _left_out_files(filesystem, path, {info.path for info in parquet})
            return InParquet(files, path, sum(info.size for info in parquet), left_out)
    table, size, left_out = labelled_folders.read_image_folder(location, field, filesystem, path)
    return InMemory(table, path, size, left_out)


def _left_out_files(filesystem: fs.FileSystem, path: str, tables: set[str]) -> OmittedRows:
    """Returns the tables of other kinds, and in other folders, that lie beside those that are read."""
    left_out = OmittedRows()
    if isinstance(filesystem, fs.LocalFileSystem):  # os.walk: Arrow's own selector follows links without end
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    else:
        paths = [info.path for info in file_info(filesystem, fs.FileSelector(path)) if info.type == fs.FileType.File]
    for name in sorted(full_path[len(path) :].lstrip("/") for full_path in paths if full_path not in tables):
        if not is_hidden(name) and name.endswith((".parquet", ".arrow", ".csv", ".tsv", ".jsonl")):
            left_out.add("table beside or below the Parquet files that are read", name)
    return left_out


def _parquet_files(filesystem: fs.FileSystem, path: str, infos: Sequence[fs.FileInfo]) -> list[fs.FileInfo]:
    """Returns the Parquet files of the folder, or of its subfolder `data`."""
    for candidates in (infos, file_info(filesystem, fs.FileSelector(f"{path}/data", allow_not_found=True))):
        if parquet := [info for info in candidates if info.base_name.endswith(".parquet")]:
            return sorted(parquet, key=lambda info: str(info.path))
    return []


def _refuse_splits(location: str, field: str, paths: Sequence[str]) -> None:
    names = [posixpath.basename(path) for path in paths]
    splits = {match[1] for name in names if (match := _SPLIT_FILE.match(name))}
    splits |= {stem for name in names if (stem := name.removesuffix(".parquet")) in labelled_folders.SPLITS}
    if len(splits) > 1:
        split_names = ", ".join(sorted(splits))
        raise ConfigError(
            field, f"{location} holds several splits ({split_names}); name a file, or a folder of one split"
        )
