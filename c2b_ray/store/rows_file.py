"""Writes rows into a local Parquet file, a few at a time: the same rows are the same bytes.

It knows Parquet, and nothing of what the rows mean or where the file goes.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

GROUP_BYTES = 32 * 2**20
"""About the bytes of images in one row group, which a reader holds at a time."""
ROW_BYTES = 512
"""Of a row, besides its texts and its image."""


@dataclass(frozen=True)
class Written:
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
        plain = [f.name for f in schema if not (pa.types.is_binary(f.type) or pa.types.is_nested(f.type))]
        compression = {f.name: small.get(f.name, "none") for f in schema if not pa.types.is_nested(f.type)}
        self._writer: pq.ParquetWriter | None = pq.ParquetWriter(
            path, schema, compression=compression, use_dictionary=plain, write_page_checksum=True
        )
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self.count = 0
        self.written = Written(0, 0, "")

    def add(self, table: pa.Table) -> None:
        self.count += table.num_rows
        sizes = self._held_bytes + np.cumsum(_bytes_of_rows(table))
        while table.num_rows:
            most = int(np.searchsorted(sizes, GROUP_BYTES)) + 1
            self._held.append(table.slice(0, most))
            self._held_bytes = int(sizes[min(most, len(sizes)) - 1])
            if self._held_bytes < GROUP_BYTES:
                return
            self._flush()
            table, sizes = table.slice(most), sizes[most:] - sizes[most - 1]

    def close(self) -> None:
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None
            with open(self._path, "rb") as stream:
                total = hashlib.file_digest(stream, "sha256").hexdigest()
            self.written = Written(self.count, os.path.getsize(self._path), total)

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
