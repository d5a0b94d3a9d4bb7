"""Parquet files whose every byte is checked when it is read: a flipped bit is an error, never another value.

Parquet's page checksums cover the pages, but neither their headers nor the footer: of all one-bit flips in a small
table, about a hundred then still read back as other values. So a seal is written before the footer, where readers do
not look:

    pages … | MAGIC | crc32 of the footer | crc32 and offset of each column chunk | length of the seal, MAGIC | footer

Other programs read the file as usual. A file without a seal is checked by its page checksums, if it has them. This
module knows no paths and no tables.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"c2bseal1"
TAIL_BYTES = 2**16
_CHUNK = struct.Struct("<QQI")
_END = 8  # the end of the file: the footer's length and PAR1
_CLOSE = 4 + len(MAGIC)  # the end of the seal: its length and MAGIC again


def encoded(table: pa.Table, **options: Any) -> memoryview:
    """Returns the table as a sealed Parquet file. `options` are those of `pyarrow.parquet.write_table`."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    data = memoryview(sink.getvalue())
    start = _footer_start(bytes(data[-_END:]), len(data))
    seal = _seal_of(bytes(data[start:-_END]), lambda first, size: data[first : first + size])
    return memoryview(b"".join([data[:start], seal, data[start:]]))


def write(path: str, schema: pa.Schema, tables: Iterable[pa.Table], **options: Any) -> None:
    """Writes a sealed Parquet file to a local `path`, with one table at a time in memory; it is on disk on return."""
    with pq.ParquetWriter(path, schema, write_page_checksum=True, **options) as writer:
        for table in tables:
            writer.write_table(table)
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)

        def read(first: int, length: int) -> bytes:
            file.seek(first)
            return file.read(length)

        start = _footer_start(read(size - _END, _END), size)
        end = read(start, size - start)
        seal = _seal_of(end[:-_END], read)
        file.seek(start)
        file.write(seal + end)
        file.flush()
        os.fsync(file.fileno())


def _seal_of(footer: bytes, read_bytes: Callable[[int, int], bytes | memoryview]) -> bytes:
    """Returns the seal of a file. `read_bytes`: returns the bytes at an offset, of a length."""
    seal = [MAGIC, struct.pack("<I", zlib.crc32(footer))]
    for first, size in _chunks(_metadata(footer)).values():
        seal.append(_CHUNK.pack(first, size, zlib.crc32(read_bytes(first, size))))
    body = b"".join(seal)
    return b"".join([body, struct.pack("<I", len(body) + _CLOSE), MAGIC])


class SealedParquet:
    """Reads a Parquet file from `stream`. Raises OSError or pa.ArrowException if it is damaged."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._size = stream.size()
        tail = self._read(max(0, self._size - TAIL_BYTES), self._size)
        start = _footer_start(tail[-_END:], self._size)
        needed_bytes = 2 * (self._size - start) + TAIL_BYTES // 64  # a seal is shorter than its footer
        if needed_bytes > len(tail) and len(tail) < self._size:
            tail = self._read(max(0, self._size - needed_bytes), self._size)
        first = self._size - len(tail)
        footer = tail[start - first : -_END]
        self._sums = _seal(tail[: start - first], footer)
        self.metadata = _metadata(footer)
        if self._sums is not None and set(self._sums) != set(_chunks(self.metadata).values()):
            raise pa.ArrowInvalid("its seal belongs to other columns")

    @property
    def names(self) -> list[str]:
        return list(self.metadata.schema.to_arrow_schema().names)

    def read(self, columns: Collection[str] | None = None) -> pa.Table:
        """Returns all rows. Columns that the file lacks are left out."""
        return self.read_groups(range(self.metadata.num_row_groups), columns)

    def read_groups(self, groups: Collection[int], columns: Collection[str] | None = None) -> pa.Table:
        names = self.names
        selected = names if columns is None else [name for name in columns if name in names]
        source: pa.NativeFile = self._stream
        if self._sums is not None:
            source = self._checked(set(groups), set(selected))
        file = pq.ParquetFile(source, metadata=self.metadata, page_checksum_verification=True)
        return file.read_row_groups(list(groups), columns=selected)

    def _checked(self, groups: set[int], columns: set[str]) -> pa.NativeFile:
        """Returns the file in memory with only the wanted column chunks; untouched pages of the map take no memory.

        Memory from the heap would: the heap writes zeros over memory that was used before.
        """
        assert self._sums is not None
        buffer = mmap.mmap(-1, self._size)
        for (group, path), (first, size) in _chunks(self.metadata).items():
            if group not in groups or path.partition(".")[0] not in columns:
                continue
            data = self._read(first, first + size)
            if zlib.crc32(data) != self._sums[first, size]:
                raise pa.ArrowInvalid(f"checksum of column {path!r} does not match")
            buffer[first : first + size] = data
        return pa.BufferReader(pa.py_buffer(buffer))

    def _read(self, first: int, end: int) -> bytes:
        data = bytes(self._stream.read_at(end - first, first))
        if len(data) != end - first:
            raise pa.ArrowInvalid("the file ends early")
        return data


def read(stream: pa.NativeFile, columns: Collection[str] | None = None) -> pa.Table:
    return SealedParquet(stream).read(columns)


def _footer_start(end: bytes, size: int) -> int:
    if len(end) < _END or end[4:] != b"PAR1":
        raise pa.ArrowInvalid("Parquet magic bytes not found at its end")
    start = size - _END - int(struct.unpack("<I", end[:4])[0])
    if start < 4:
        raise pa.ArrowInvalid("its footer is longer than the file")
    return start


def _metadata(footer: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"))


def _chunks(metadata: pq.FileMetaData) -> dict[tuple[int, str], tuple[int, int]]:
    """Returns (row group, column path) → (first byte, size) of each chunk."""
    result = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            first = column.data_page_offset
            if column.dictionary_page_offset is not None:
                first = min(first, column.dictionary_page_offset)
            result[group, column.path_in_schema] = (first, column.total_compressed_size)
    return result


def _seal(tail: bytes, footer: bytes) -> dict[tuple[int, int], int] | None:
    """Returns (first byte, size) → checksum of each chunk; None if the file has no seal."""
    if tail[-len(MAGIC) :] != MAGIC:
        return None
    size = int(struct.unpack("<I", tail[-_CLOSE : -len(MAGIC)])[0])
    body = tail[-size:-_CLOSE]
    head = len(MAGIC) + 4
    if size > len(tail) or body[: len(MAGIC)] != MAGIC or (len(body) - head) % _CHUNK.size:
        raise pa.ArrowInvalid("its seal is damaged")
    if zlib.crc32(footer) != struct.unpack("<I", body[len(MAGIC) : head])[0]:
        raise pa.ArrowInvalid("checksum of the footer does not match")
    return {(first, length): total for first, length, total in _CHUNK.iter_unpack(body[head:])}
