"""A labelled table: Parquet or CSV with `image` (a path relative to the table, or bytes), `target_class`, attributes.

It hands out the labels at once and the images' bytes by row, reading only the row groups or files asked for. It does
not know what the labels mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.filesystems import absent_bucket, concerns_the_store, refusal, resolve
from c2b_ray.schemas import content_id

IMAGE, TARGET = "image", "target_class"
NOT_ATTRIBUTES = (IMAGE, "key")
THREADS = 16


class LabelledTable:
    """The table at `location`. SourceError where it cannot be read or is empty; ConfigError names a missing column.

    `field`: of the audit file that names the table, for errors.
    """

    def __init__(self, location: str, field: str = "images.table") -> None:
        self.location = location
        self._field = field
        self._fs, self._path = resolve(location)
        self._is_csv = location.lower().endswith((".csv", ".tsv"))
        self._group: tuple[int, pa.ChunkedArray] | None = None
        columns = self._schema.names
        for needed in (IMAGE, TARGET):
            if needed not in columns:
                raise ConfigError(
                    field,
                    f"{location} has no column {needed!r} ({nearest(needed, columns)}); expected `image` (a path "
                    "relative to the table, or bytes), `target_class` and a column per attribute",
                )
        if self.labels.num_rows == 0:
            raise SourceError(f"{location} has no rows")

    def __reduce__(self) -> tuple[type[LabelledTable], tuple[str, str]]:
        return LabelledTable, (self.location, self._field)

    @cached_property
    def _csv(self) -> pa.Table:
        delimiter = "\t" if self.location.lower().endswith(".tsv") else ","
        try:
            with self._fs.open_input_stream(self._path) as stream:
                return pa.csv.read_csv(stream, parse_options=pa.csv.ParseOptions(delimiter=delimiter))
        except FileNotFoundError as error:
            raise SourceError(absent_bucket(self.location) or f"{self.location}: no such table") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(refusal(self.location, error) or f"{self.location} is not CSV: {error}") from error

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._fs.open_input_file(self._path))
        except FileNotFoundError as error:
            raise SourceError(absent_bucket(self.location) or f"{self.location}: no such table") from error
        except (pa.ArrowInvalid, OSError) as error:
            why = refusal(self.location, error) or f"{self.location} is not a Parquet file: {error}"
            raise SourceError(why) from error

    @property
    def _schema(self) -> pa.Schema:
        return self._csv.schema if self._is_csv else self._parquet.schema_arrow

    def _columns(self, names: list[str]) -> pa.Table:
        return self._csv.select(names) if self._is_csv else self._parquet.read(columns=names)

    @cached_property
    def labels(self) -> pa.Table:
        """`target_class` and the attribute columns as strings, a row per image; nulls and empty strings are null."""
        names = [n for n in self._schema.names if n not in NOT_ATTRIBUTES and _is_label(self._schema.field(n).type)]
        table = self._columns(names)
        return pa.table({name: _as_text(table[name]) for name in names})

    @cached_property
    def keys(self) -> list[str]:
        """How each image is named: its path, or its row where the bytes are in the table."""
        if "key" in self._schema.names:
            return [str(key) for key in self._columns(["key"])["key"].to_pylist()]
        if pa.types.is_string(self._schema.field(IMAGE).type) or pa.types.is_large_string(
            self._schema.field(IMAGE).type
        ):
            return [str(key) for key in self._columns([IMAGE])[IMAGE].to_pylist()]
        return [f"row {i}" for i in range(self.labels.num_rows)]

    @cached_property
    def revision(self) -> str:
        info: Any = self._fs.get_file_info(self._path)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.labels.schema) as writer:
            writer.write_table(self.labels.combine_chunks())
        return content_id(sink.getvalue().to_pybytes(), self.keys, info.size)

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Columns `key`, `bytes`, `error` of the rows `ids`, in their order."""
        values = [self._cell(row) for row in ids]
        with ThreadPoolExecutor(THREADS) as pool:  # an object store answers slowly, but many at once
            found = list(pool.map(self._image, values))
        return pa.table(
            {
                "key": pa.array([self.keys[row] for row in ids], pa.string()),
                "bytes": pa.array([data for data, _ in found], pa.binary()),
                "error": pa.array([error for _, error in found], pa.string()),
            }
        )

    def _image(self, value: Any) -> tuple[bytes | None, str | None]:
        if isinstance(value, dict):  # as Hugging Face's datasets write an image
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return value, None
        if not value:
            return None, "the table names no image in this row"
        folder = self._path.rsplit("/", 1)[0] if "/" in self._path else "."
        path = value if value.startswith("/") else f"{folder}/{value}"
        try:
            with self._fs.open_input_stream(path) as stream:
                return bytes(stream.read()), None
        except FileNotFoundError:
            return None, "no such file beside the table"
        except OSError as error:
            if concerns_the_store(error):
                raise SourceError(refusal(self.location, error)) from error
            return None, f"cannot be read: {error.strerror or error}"

    def _cell(self, row: int) -> Any:
        if self._is_csv:
            return self._csv[IMAGE][row].as_py()
        metadata, start = self._parquet.metadata, 0
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if row < start + size:
                # Rows come in order, so one row group at a time is all that is held.
                if self._group is None or self._group[0] != group:
                    self._group = (group, self._parquet.read_row_group(group, columns=[IMAGE])[IMAGE])
                return self._group[1][row - start].as_py()
            start += size
        raise IndexError(row)


def _is_label(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    column = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
