"""The tables of an index under construction: sources of rows, and the two files that store them.

It knows Parquet and Arrow files, and only passes on a source's vectors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.errors import SourceError
from c2b_ray.models.index.plan import ROWS, Part
from c2b_ray.roles import Floats

ROWS_PER_BATCH = 65536
"""Rows in a record batch of rows.arrow."""


class Source(Protocol):
    """Some rows of an index, in a fixed order. `rows` may exceed the number that `read` returns: the others are
    skipped."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        """Yields tables of at most `most` rows and their embeddings, float32 (rows, dimension), unit norm."""
        ...


class ParquetPart:
    """A Parquet file of keys, bytes and embeddings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        try:
            self.rows = pq.read_metadata(path).num_rows
        except FileNotFoundError as error:
            raise SourceError(f"{path}: no such file") from error
        except pa.ArrowException as error:
            raise SourceError(f"{path}: not a Parquet file that can be read: {error}") from error

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        """Yields batches of the usable rows without `embedding`, and their embeddings."""
        try:
            with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(batch_size=most):
                    table = pa.Table.from_batches([batch])
                    if missing := {"key", "bytes", "embedding"} - set(table.column_names):
                        raise SourceError(f"{self._path}: no column {', '.join(sorted(missing))}")
                    kept = table.filter(pc.and_(table["bytes"].is_valid(), table["embedding"].is_valid()))
                    embeddings = _matrix(kept["embedding"], self._path)
                    finite = np.isfinite(embeddings).all(axis=1)
                    kept = kept.filter(pa.array(finite)).drop_columns(["embedding", *_id_column(kept)])
                    if len(kept):
                        yield kept, embeddings[finite]
        except pa.ArrowException as error:
            raise SourceError(f"{self._path}: not a Parquet file that can be read: {error}") from error


class GroupWriter:
    """Writes rows in row groups of exactly `group_rows`, except the last, so readers find a row by division."""

    def __init__(self, path: Path, schema: pa.Schema, group_rows: int) -> None:
        # Images are compressed already.
        self._writer = pq.ParquetWriter(
            path, schema, compression="none", use_dictionary=False, write_page_checksum=True
        )
        self._waiting = schema.empty_table()
        self._group_rows = group_rows

    def write(self, rows: pa.Table) -> None:
        self._waiting = pa.concat_tables([self._waiting, rows])
        while len(self._waiting) >= self._group_rows:
            self._writer.write_table(self._waiting.slice(0, self._group_rows), row_group_size=self._group_rows)
            self._waiting = self._waiting.slice(self._group_rows)

    def close(self) -> None:
        if len(self._waiting):
            self._writer.write_table(self._waiting, row_group_size=self._group_rows)
        self._writer.close()


def write_rows(root: Path, parts: Sequence[Part]) -> None:
    """Writes `rows.arrow` from the parts: all columns except the bytes, in batches of the same length except
    the last."""
    schema = pq.read_schema(root / parts[0].file).remove_metadata()
    names = [name for name in schema.names if name not in ("id", "bytes")]
    schema = pa.schema([schema.field(name) for name in names])
    temporary = root / f"{ROWS}.tmp"
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        waiting = schema.empty_table()
        for part in parts:
            file = pq.ParquetFile(root / part.file, page_checksum_verification=True)
            waiting = pa.concat_tables([waiting, file.read(names)])
            whole = len(waiting) // ROWS_PER_BATCH * ROWS_PER_BATCH
            for start in range(0, whole, ROWS_PER_BATCH):
                writer.write_batch(_joined(waiting.slice(start, ROWS_PER_BATCH), schema))
            waiting = waiting.slice(whole)
        if len(waiting):
            writer.write_batch(_joined(waiting, schema))
    os.replace(temporary, root / ROWS)


def _joined(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return table.cast(schema).combine_chunks().to_batches()[0]


def _id_column(table: pa.Table) -> list[str]:
    """Returns the source's column `id`, if any, which the index's ids replace."""
    return ["id"] if "id" in table.column_names else []


def _matrix(column: pa.ChunkedArray, source: Path) -> Floats:
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise SourceError(f"{source}: embedding is {kind}, expected a fixed-size list of float32")
    # flatten, not values: the latter keeps what filters and slices have cut off.
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, dtype=np.float32).reshape(len(column), kind.list_size)
