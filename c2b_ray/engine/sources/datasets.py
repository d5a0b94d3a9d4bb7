"""Reads sources of images as rows of a stage: folders, Parquet tables, WebDataset shards."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.engine.sources import webdataset
from c2b_ray.engine.sources.files import ROW, ROWS_AT_ONCE, Listing, Location, listing, tables, unread
from c2b_ray.engine.stage import Rows
from c2b_ray.errors import SourceError
from c2b_ray.storage import THREADS, absent_bucket, refusal, resolve
from c2b_ray.storage.folders import IMAGES, OmittedRows, counts_in_words
from c2b_ray.storage.s3 import file_info

# Reads Parquet tables of images as rows: bytes within the table, also as Hugging Face writes them, or paths beside
# it.


EXPECTED_COLUMNS = (
    "expected `bytes`, `image` or img2dataset's `jpg` (binary, or a struct with `bytes` as Hugging Face has it), or "
    "`image` or `key` with paths of files relative to the table"
)
ROWS_PER_BLOCK = 1024
_OF_IMG2DATASET = ("jpg", "png", "webp")
UNITS = pa.schema(
    [("file", pa.string()), ("group", pa.int64()), ("first", pa.int64()), ("rows", pa.int64()), ("error", pa.string())]
)
"""A row group, of which `rows` rows are read; or, with `error`, a file whose footer cannot be read (one row)."""
Damaged = (OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True)
class _Footer:
    file: str
    schema: pa.Schema | None = None
    groups: tuple[int, ...] = ()
    error: str | None = None


def has_images(location: Location, names: list[str]) -> bool:
    """Returns whether the first table that can be read has a column of images."""
    footers = (_footer(location, name) for name in names)
    schema = next((footer.schema for footer in footers if footer.schema is not None), None)
    return schema is not None and _image_column(schema) is not None


def holds_images(location: Location, names: list[str]) -> bool:
    """Returns whether the first table that can be read holds images as bytes, and not their paths."""
    footers = (_footer(location, name) for name in names)
    schema = next((footer.schema for footer in footers if footer.schema is not None), None)
    column = None if schema is None else _image_column(schema)
    return schema is not None and column is not None and _binary(schema.field(column).type)


def read_parquet(location: Location, names: list[str], limit: int | None) -> Rows:
    """Returns the rows of the tables. Keys are `<file>#<row>`, or the column `key` where it is set; other columns are
    kept.

    Raises SourceError where a table has no column of images, where none can be read, where they disagree on a column's
    type, or where a key is repeated.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        footers = list(pool.map(partial(_footer, location), names))
    if all(footer.schema is None for footer in footers):
        raise SourceError(f"{location.source}: no Parquet file can be read; {footers[0].file}: {footers[0].error}")
    for footer in footers:
        if footer.schema is not None and _image_column(footer.schema) is None:
            columns = ", ".join(footer.schema.names)
            raise SourceError(
                f"{location.source}: {footer.file} has no column of images; {EXPECTED_COLUMNS}; it has {columns}"
            )
    other_schema = _other_columns(location, [footer.schema for footer in footers if footer.schema is not None])
    units = _units(footers, limit)
    _refuse_repeats(location, [f for f in footers if f.schema is not None and "key" in f.schema.names], units)
    if limit is None or sum(u["rows"] for u in units) < limit:
        units += [{"file": f.file, "rows": 1, "error": f.error} for f in footers if f.error is not None]
    return Rows(
        _blocks(units), partial(_rows, location=location, other_schema=other_schema), sum(u["rows"] for u in units)
    )


def _footer(location: Location, name: str) -> _Footer:
    try:
        with location.open(name) as stream, pq.ParquetFile(stream) as file:
            groups = (file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
            return _Footer(name, file.schema_arrow, tuple(groups))
    except Damaged as error:
        return _Footer(name, error=unread(error, location.source))


def _image_column(schema: pa.Schema) -> str | None:
    for name in ("bytes", "image", *_OF_IMG2DATASET, "key"):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        if name != "key" and (_binary(kind) or (pa.types.is_struct(kind) and "bytes" in kind.names)):
            return name
        if name in ("image", "key") and _text(kind):
            return name
    return None


def _text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _other_columns(location: Location, schemas: list[pa.Schema]) -> pa.Schema:
    """Returns the columns besides image and key, of one type in every row: Ray cannot join blocks that differ."""
    column_schemas = []
    for schema in schemas:
        of_images = _image_column(schema)
        names = [name for name in schema.names if name not in ROW.names]
        # A column of paths stays: it holds more than the key.
        names = [name for name in names if name != of_images or _text(schema.field(name).type)]
        kinds = [schema.field(name).type for name in names]
        values = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
        column_schemas.append(pa.schema(list(zip(names, values, strict=True))))
    try:
        return pa.unify_schemas(column_schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise SourceError(f"{location.source}: the tables disagree on a column: {error}") from error


def _units(footers: list[_Footer], limit: int | None) -> list[dict[str, Any]]:
    """Returns the row groups to read, the last one cut off at the limit."""
    units, remaining = [], limit
    for footer in footers:
        first = 0
        for group, rows in enumerate(footer.groups):
            count = rows if remaining is None else min(rows, remaining)
            if count:
                units.append({"file": footer.file, "group": group, "first": first, "rows": count})
            remaining = None if remaining is None else remaining - count
            first += rows
    return units


def _blocks(units: list[dict[str, Any]]) -> list[pa.Table]:
    blocks: list[list[dict[str, Any]]] = [[]]
    for unit in units:
        if sum(u["rows"] for u in blocks[-1]) >= ROWS_PER_BLOCK:
            blocks.append([])
        blocks[-1].append(unit)
    return [pa.Table.from_pylist(block, UNITS) for block in blocks]


def _refuse_repeats(location: Location, footers: list[_Footer], units: list[dict[str, Any]]) -> None:
    rows_read = {
        f.file: max((u["first"] + u["rows"] for u in units if u["file"] == f.file), default=0) for f in footers
    }

    def keys(footer: _Footer) -> pa.ChunkedArray:
        try:
            with location.open(footer.file) as stream:
                return pq.ParquetFile(stream).read(["key"])["key"].slice(0, rows_read[footer.file]).cast(pa.string())
        except Damaged:  # its rows will say so
            return pa.chunked_array([], pa.string())

    with ThreadPoolExecutor(THREADS) as pool:
        content = [chunk for column in pool.map(keys, footers) for chunk in column.chunks]
    counts = pc.value_counts(pa.chunked_array(content, pa.string()).drop_null())
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        key, times = repeated[0].as_py().values()
        raise SourceError(
            f"{location.source}: {len(repeated)} values of `key` are not unique, such as {key!r} ({times} rows); "
            "make them so, or rename the column"
        )


def _rows(units: pa.Table, location: Location, other_schema: pa.Schema) -> Iterator[pa.Table]:
    for unit in units.to_pylist():
        if unit["error"] is not None:
            yield from tables([{"key": unit["file"], "error": f"a damaged table: {unit['error']}"}], list(other_schema))
            continue
        rows = range(unit["first"], unit["first"] + unit["rows"])
        yield from _unit(location, unit["file"], unit["group"], rows, other_schema)


def _unit(location: Location, file: str, group: int, rows: range, other_schema: pa.Schema) -> Iterator[pa.Table]:
    done = 0
    try:
        with location.open(file) as stream, pq.ParquetFile(stream) as table:
            for batch in table.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                part = pa.Table.from_batches([batch])[: len(rows) - done]
                if not part.num_rows:
                    return
                yield _converted(location, file, part, rows[done], other_schema)
                done += part.num_rows
    except Damaged as error:
        reason = f"a damaged table: {unread(error, location.source)}"
        yield from tables(({"key": f"{file}#{row}", "error": reason} for row in rows[done:]), list(other_schema))


def _converted(location: Location, file: str, table: pa.Table, first: int, other_schema: pa.Schema) -> pa.Table:
    numbered = pa.array([f"{file}#{first + i}" for i in range(table.num_rows)], pa.string())
    has_keys = "key" in table.column_names
    keys = pc.coalesce(table["key"].cast(pa.string()).combine_chunks(), numbered) if has_keys else numbered
    column = _image_column(table.schema)
    data, errors = _content(location, posixpath.dirname(file), table[column])
    stored_errors = _error_notes(table)
    columns = {
        "key": keys,
        "bytes": pa.array(data, pa.binary()),
        "error": pa.array([old or new for old, new in zip(stored_errors, errors, strict=True)], pa.string()),
    }
    for other in other_schema:
        is_present = other.name in table.column_names
        columns[other.name] = table[other.name].cast(other.type) if is_present else pa.nulls(table.num_rows, other.type)
    return pa.table(columns)


def _error_notes(table: pa.Table) -> list[str | None]:
    """Returns why rows have no image, where the table itself says so: its column `error`, or img2dataset's `status`."""
    if "error" in table.column_names:
        return list(table["error"].cast(pa.string()).to_pylist())
    if {"status", "error_message"} <= set(table.column_names):
        pairs = zip(table["status"].to_pylist(), table["error_message"].to_pylist(), strict=True)
        return [
            None if status in (None, "success") else f"{status}: {message or 'no reason'}" for status, message in pairs
        ]
    return [None] * table.num_rows


def _content(location: Location, folder: str, column: pa.ChunkedArray) -> tuple[list[bytes | None], list[str | None]]:
    """Returns the bytes and the error of each row."""
    values = column.to_pylist()
    if _binary(column.type):
        return values, [None if value is not None else "no bytes" for value in values]
    if pa.types.is_struct(column.type):
        data = [(value or {}).get("bytes") for value in values]
        paths = [(value or {}).get("path") for value in values]
    else:
        data, paths = [None] * len(values), values
    missing = [i for i, (content, path) in enumerate(zip(data, paths, strict=True)) if content is None and path]
    errors: list[str | None] = ["no bytes" if content is None else None for content in data]
    names_of_rows = {i: _inside(folder, str(paths[i])) for i in missing}
    fetched = location.fetch_all([name for name in names_of_rows.values() if name is not None], follow_links=False)
    for i, name in names_of_rows.items():
        if name is None:
            errors[i] = f"{paths[i]}: leads out of {location.source}"
        else:
            data[i], error = fetched.pop(0)
            errors[i] = error and f"{paths[i]}: {error}"
    return data, errors


def _inside(folder: str, path: str) -> str | None:
    """Returns the path within the source; None where it leads out: a table must not name any file of the machine."""
    name = posixpath.normpath(posixpath.join(folder, path))
    return None if name.startswith(("/", "../")) or name == ".." else name


# Recognises what img2dataset wrote: for each shard `00000.parquet` with a row for each address, and the images in
# `00000.tar`, in a folder `00000/`, or in the table itself.


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


PARQUET = (".parquet", ".pq")
SHARDS = (".tar", ".tar.gz", ".tgz")
EXPECTED = (
    f"expected a folder of images ({', '.join(IMAGES)}), a Parquet file or a folder of them, or a WebDataset .tar or a "
    "folder of them"
)
FILES_AT_ONCE = 32


@dataclass(frozen=True)
class Source:
    """The rows of a source, and what is in it and not among them."""

    rows: Rows
    left_out: OmittedRows = field(default_factory=OmittedRows)


def read(source: str, *, limit: int | None = None) -> Rows:
    """Returns the rows of `source`, a local path or a URI such as `s3://bucket/images`; the first `limit` of them.

    The same source gives the same keys, each once. Raises SourceError where there is no image, or where tables repeat a
    key.
    """
    return opened(source, limit=limit).rows


def opened(source: str, *, limit: int | None = None) -> Source:
    """Like `read`, and also says what is left out."""
    filesystem, path = resolve(source)
    path = path.rstrip("/")
    try:
        kind = file_info(filesystem, path).type
        if kind == fs.FileType.File:
            folder, _, name = path.rpartition("/")
            return _read(Location(source, filesystem, folder), Listing([name]), limit)
        if kind == fs.FileType.Directory:
            location = Location(source, filesystem, path)
            return _read(location, listing(location), limit)
    except OSError as error:
        raise SourceError(refusal(source, error) or f"{source}: cannot be read: {error}") from error
    raise SourceError(absent_bucket(source) or f"{source}: no such file or folder; {EXPECTED}")


def _read(location: Location, files: Listing, limit: int | None) -> Source:
    of_images, of_tables, of_shards = (_ending(files.names, kind) for kind in (IMAGES, PARQUET, SHARDS))
    left_out, used_tables = files.left_out, set[str]()
    if is_img2dataset(location, of_tables, [*of_images, *of_shards]):
        left_out.merge(failed(location, of_tables))
        used_tables, of_tables = set(of_tables), []
    # Tables often lie beside the images that they name, so a table with a column of images goes first.
    if of_tables and (has_images(location, of_tables) or not (of_images or of_shards)):
        pictures = of_images if holds_images(location, of_tables) else []
        left_out.add_files(set(files.names) - set(of_images), {*of_tables, *used_tables})
        left_out.add(
            "picture beside the tables, which hold the images themselves", next(iter(pictures), ""), len(pictures)
        )
        return Source(read_parquet(location, of_tables, limit), left_out)
    if of_images and of_shards:
        raise SourceError(
            f"{location.source}: holds {len(of_images)} images and {len(of_shards)} tar files; name the one you mean"
        )
    left_out.add_files(files.names, {*of_images, *of_shards, *used_tables})
    if of_shards:
        return Source(webdataset.read(location, of_shards, IMAGES, limit), left_out)
    if not of_images and not files.refused:
        contents = f"no image ({counts_in_words(left_out.counts)})" if left_out.counts else "nothing"
        raise SourceError(f"{location.source}: holds {contents}; {EXPECTED}")
    rows = sorted([*((name, None) for name in of_images), *files.refused.items()])[:limit]
    names = pa.table(
        {"key": [name for name, _ in rows], "error": pa.array([reason for _, reason in rows], pa.string())}
    )
    # Few enough blocks that the driver can hold millions of files, small enough that two workers share a thousand.
    size = max(256, len(rows) // 2000)
    return Source(replace(Rows.of(names, size), expand=partial(_fetched, location=location)), left_out)


def _fetched(names: pa.Table, location: Location) -> Iterator[pa.Table]:
    for start in range(0, names.num_rows, FILES_AT_ONCE):
        rows = names.slice(start, FILES_AT_ONCE).to_pylist()
        content = iter(location.fetch_all([row["key"] for row in rows if row["error"] is None]))
        filled = []
        for row in rows:
            data, error = (None, row["error"]) if row["error"] else next(content)
            filled.append({"key": row["key"], "bytes": data, "error": error})
        yield from tables(filled)


def _ending(names: Sequence[str], suffixes: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.lower().endswith(suffixes)]
