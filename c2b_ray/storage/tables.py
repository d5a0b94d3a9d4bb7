"""Tables that need not fit in memory: read a file at a time, written a table at a time, counted by their footers.

It knows files and Parquet, not their content. Files are written atomically, as in `files`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from c2b_ray.errors import SourceError
from c2b_ray.storage import THREADS, absent_bucket, files, refusal, resolve, sealed
from c2b_ray.storage.folders import IMAGES
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.parts import Digests, digests
from c2b_ray.storage.s3 import open_input, patiently
from c2b_ray.storage.sealed import SealedParquet

_READ_AT_ONCE = 2**20


def read_parts(location: str | Path, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Like `read_table`, but yields a file at a time, or a row group of a large file."""
    for path in files.table_files(location):
        groups = files.parquet(path, lambda file: int(file.metadata.num_row_groups))
        if groups < 2:
            yield files.parquet(path, lambda file: file.read(columns))
        else:
            yield from (files.parquet(path, group_reader(number, columns)) for number in range(groups))


def group_reader(number: int, columns: Sequence[str] | None) -> Callable[[sealed.SealedParquet], pa.Table]:
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
            left, right = (stream.read(_READ_AT_ONCE) for stream in streams)
            if left != right:
                return False
            if not left:
                return True


# Writes rows into a local Parquet file, a few at a time: the same rows are the same bytes.


GROUP_BYTES = 32 * 2**20
"""About the bytes of images in one row group, which a reader holds at a time."""
ROW_BYTES = 512
"""Of a row, besides its texts and its image."""


@dataclass(frozen=True)
class WrittenFile:
    """The size and hash of a written file."""

    rows: int
    bytes: int
    sha256: str


class RowsFile:
    """A Parquet file that is being written at a local path. `written`: its size and hash, once it is closed.

    Where a row group ends depends on the rows alone, not on how they are added: the same rows are the same bytes.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        small = {f.name: "zstd" for f in schema if not pa.types.is_binary(f.type)}
        dictionary_columns = [f.name for f in schema if not (pa.types.is_binary(f.type) or pa.types.is_nested(f.type))]
        compression = {f.name: small.get(f.name, "none") for f in schema if not pa.types.is_nested(f.type)}
        self._writer: pq.ParquetWriter | None = pq.ParquetWriter(
            path, schema, compression=compression, use_dictionary=dictionary_columns, write_page_checksum=True
        )
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self.count = 0
        self.written = WrittenFile(0, 0, "")

    def add(self, table: pa.Table) -> None:
        self.count += table.num_rows
        sizes = self._held_bytes + np.cumsum(_bytes_of_rows(table))
        while table.num_rows:
            count = int(np.searchsorted(sizes, GROUP_BYTES)) + 1
            self._held.append(table.slice(0, count))
            self._held_bytes = int(sizes[min(count, len(sizes)) - 1])
            if self._held_bytes < GROUP_BYTES:
                return
            self._flush()
            table, sizes = table.slice(count), sizes[count:] - sizes[count - 1]

    def close(self) -> None:
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None
            with open(self._path, "rb") as stream:
                total = hashlib.file_digest(stream, "sha256").hexdigest()
            self.written = WrittenFile(self.count, os.path.getsize(self._path), total)

    def abandon(self) -> None:
        """Closes the file without finishing it, unless it is closed already."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        assert self._writer is not None
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held).combine_chunks(), row_group_size=self.count or 1)
            self._held, self._held_bytes = [], 0


def _bytes_of_rows(table: pa.Table) -> NDArray[np.int64]:
    """Returns about how many bytes each row has."""
    sizes = np.full(table.num_rows, ROW_BYTES, np.int64)
    for column in table.schema:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += pc.fill_null(pc.binary_length(table[column.name]), 0).to_numpy()
    return sizes


# Reads some rows of a table by number or by id, and only the row groups that contain them.


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a table. `locations`: the files. `file`, `number`: for each group, its file and its number
    there. `ends`: for each group, the number of rows up to its end."""

    locations: tuple[str, ...]
    file: Ints
    number: Ints
    ends: Ints

    @staticmethod
    def of(locations: Sequence[str]) -> RowGroups:
        """Reads the footers of the files. SourceError names one that cannot be read."""
        with ThreadPoolExecutor(THREADS) as pool:
            sizes = list(pool.map(lambda location: files.parquet(location, _sizes), locations))
        counts = [len(of_file) for of_file in sizes]
        number = np.concatenate([np.arange(count) for count in counts]) if counts else np.zeros(0)
        rows = np.array([rows for of_file in sizes for rows in of_file], np.int64)
        return RowGroups(tuple(locations), np.repeat(np.arange(len(counts)), counts), number.astype(int), rows.cumsum())

    @property
    def rows(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def page(self, start: int, limit: int, columns: Sequence[str]) -> list[pa.Table]:
        """Returns at most `limit` rows from `start` on, in one table per group."""
        end = min(start + limit, self.rows)
        if start >= end:
            return []
        first, last = np.searchsorted(self.ends, [start, end - 1], "right").tolist()
        tables = []
        for group in range(first, last + 1):
            begin = int(self.ends[group - 1]) if group else 0
            tables.append(self.read(group, columns).slice(max(0, start - begin), end - max(start, begin)))
        return tables

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> list[pa.Table]:
        """Returns the rows with these numbers, in this order, each in its own table."""
        groups = np.searchsorted(self.ends, rows, "right")
        table_of_group = {group: self.read(group, columns) for group in np.unique(groups).tolist()}
        begins = np.concatenate([[0], self.ends])[groups]
        return [
            table_of_group[group].slice(row - begin, 1)
            for row, group, begin in zip(rows, groups.tolist(), begins.tolist(), strict=True)
        ]

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Returns all rows of a group. Columns that its file lacks are left out."""
        return files.parquet(self.locations[self.file[group]], group_reader(int(self.number[group]), columns))

    def each(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yields the groups in order, reading some ahead."""
        groups = range(len(self.ends))
        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(groups), THREADS):
                yield from pool.map(lambda group: self.read(group, columns), groups[start : start + THREADS])


@dataclass(frozen=True)
class IdIndex:
    """Finds the group of an id: twelve bytes of each id, sorted, and the number of its group."""

    ids: Digests
    group: NDArray[np.int32]

    @staticmethod
    def of(groups: RowGroups, column: str) -> IdIndex:
        """Builds the index, reading the ids once."""
        tables = [digests(table[column]) for table in groups.each([column])]
        if not tables:
            return IdIndex(np.zeros(0, "S12"), np.zeros(0, np.int32))
        ids = np.concatenate(tables)
        order = np.argsort(ids, kind="stable")
        return IdIndex(ids[order], np.repeat(np.arange(len(tables)), list(map(len, tables))).astype(np.int32)[order])

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.group.nbytes

    def groups_of(self, text: str) -> list[int]:
        """Returns the groups that may contain the id, mostly one or none."""
        [digest] = digests(pa.chunked_array([[text]], pa.string()))
        first, end = np.searchsorted(self.ids, digest, "left"), np.searchsorted(self.ids, digest, "right")
        return sorted(set(self.group[first:end].tolist()))


def _sizes(file: SealedParquet) -> list[int]:
    return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]


# Reads CSV files and JSON lines as text, without a guess at types: `007` is not 7, and `NA` may be a country.


@contextmanager
def reading(location: str, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(absent_bucket(location) or f"{location}: no such table") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(refusal(location, error) or f"{location} is not {what}: {error}") from error


def read_csv(location: str, filesystem: fs.FileSystem, path: str, delimiter: str) -> pa.Table:
    """Reads all columns as text: `007` is not 7, and `NA` may be a country."""
    with reading(location, "CSV"):
        with open_input(filesystem, path) as stream:
            data = bytes(stream.read())
        _refuse_other_letters(location, data)
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")  # decodes only the first line
        header = next(csv.reader(text, delimiter=delimiter), [])
        refuse_repeats(location, header)
        refuse_other_delimiters(location, header, delimiter)
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )


def _refuse_other_letters(location: str, data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise SourceError(
            f"{location}: line {row} is not UTF-8 ({data[error.start]:#04x}); save the table as “CSV UTF-8”"
        ) from error


def refuse_repeats(location: str, names: Sequence[str]) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise SourceError(f"{location}: two columns are called {repeated!r}; rename one")


def refuse_other_delimiters(location: str, header: Sequence[str], delimiter: str) -> None:
    sep = next(
        (candidate for candidate in ";\t|," if candidate != delimiter and len(header) == 1 and candidate in header[0]),
        None,
    )
    if sep is not None:
        raise SourceError(
            f"{location}: its fields are separated by {sep!r}, not by {delimiter!r}; save it with commas as .csv, or "
            "with tabs as .tsv"
        )


def read_metadata(location: str, filesystem: fs.FileSystem, path: str) -> pa.Table:
    if path.endswith(".csv"):
        return read_csv(location, filesystem, path, ",")
    return read_json_lines(filesystem, path)


def read_json_lines(filesystem: fs.FileSystem, path: str) -> pa.Table:
    """Reads an object a line, all values as text. A value of an object in it is the column `outer.inner`; lists are
    left out. Raises SourceError for a line that is no object."""
    with reading(path, "JSON lines"), open_input(filesystem, path) as stream:
        lines = bytes(stream.read()).decode("utf-8-sig").split("\n")  # a text in JSON may hold other line separators
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line) if line.strip() else None
        except ValueError as error:
            raise SourceError(f"{path}: line {number} is not JSON: {error}") from error
        if row is not None and not isinstance(row, dict):
            raise SourceError(f"{path}: line {number}: expected an object of column → value")
        rows += [_flat(row)] if row is not None else []
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([_text(row.get(name)) for row in rows], pa.string()) for name in names})


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    objects = {name: value for name, value in row.items() if isinstance(value, dict)}
    inner = {f"{name}.{part}": one for name, value in objects.items() for part, one in value.items()}
    return {name: value for name, value in row.items() if name not in objects} | inner


_ENDINGS = "|".join(re.escape(ending) for ending in IMAGES)
_IMAGE_AND_CLASS = re.compile(rf"(.+?(?:{_ENDINGS}))(?:\s*,\s*|\s+)(\S.*)", re.IGNORECASE)
_TWO_WORDS = re.compile(r"([^\s,]+)(?:\s*,\s*|\s+)([^\s,]+)")


def read_image_list(location: str, filesystem: fs.FileSystem, path: str) -> pa.Table:
    """Reads lines of an image's path and its class, with white space or a comma between them and no header, as
    training code for ImageNet has them, as columns `image` and `target_class`.

    Raises SourceError, with its number, for a line that is none.
    """
    with reading(location, "text"), open_input(filesystem, path) as stream:
        lines = bytes(stream.read()).decode("utf-8-sig").splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        parts = _IMAGE_AND_CLASS.fullmatch(line.strip()) or _TWO_WORDS.fullmatch(line.strip())
        if parts is None and line.strip():
            raise SourceError(
                f"{location}: line {number} is not an image's path and its class: {line.strip()[:80]!r}; write a table "
                "with a header, such as image,label, as .csv"
            )
        rows += [parts.groups()] if parts is not None else []
    images, classes = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"image": pa.array(images, pa.string()), "target_class": pa.array(classes, pa.string())})


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value) if isinstance(value, bool | int | float) else None
