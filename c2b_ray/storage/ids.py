"""Digests of ids, by which stages tell which rows exist. This module knows no files (`memory` sorts digests there)."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DIGEST = "S12"
DIGESTED_AT_ONCE = 4096
Digests = NDArray[np.bytes_]


def digests(ids: pa.ChunkedArray | pa.Array) -> Digests:
    """Returns 96 bits of each id: small enough to send to every worker. Ray shares them uncopied, because their width
    is fixed."""
    marks = np.empty(len(ids), DIGEST)
    for start in range(0, len(ids), DIGESTED_AT_ONCE):  # as Python objects, ids take ten times the memory
        texts = ids.slice(start, DIGESTED_AT_ONCE).cast(pa.string()).to_pylist()
        some = [hashlib.blake2b(text.encode(), digest_size=12).digest() for text in texts]
        marks[start : start + len(some)] = some
    return marks


def absent(ids: pa.ChunkedArray | pa.Array, there: Digests) -> NDArray[np.bool_]:
    """Returns which of the ids are not among the sorted digests."""
    if not len(there):
        return np.ones(len(ids), bool)
    return _absent(digests(ids), there)


def among(some: Digests, there: Digests) -> bool:
    """Tells whether all of the digests are among the sorted ones."""
    return not len(some) or (len(there) > 0 and not _absent(some, there).any())


def _absent(some: Digests, there: Digests) -> NDArray[np.bool_]:
    nearest = np.minimum(np.searchsorted(there, some), len(there) - 1)
    is_absent: NDArray[np.bool_] = there[nearest] != some
    return is_absent


def distinct(ids: Digests) -> Digests:
    """Returns each of the sorted ids once."""
    again = repeats(ids)
    return ids[~again] if again.any() else ids


def repeats(ids: Digests) -> NDArray[np.bool_]:
    """Returns which of the sorted ids equal the one before."""
    again = np.zeros(len(ids), bool)
    again[1:] = ids[1:] == ids[:-1]
    return again


# Memory for data collected from millions of rows, which the process returns to the system afterwards.


FIRST_BYTES = 2**20
HELD_BYTES = 2**20
"""Of `OnDisk`, so many wait in memory for their file."""
_M_ARENA_MAX = -8  # of malloc.h


class RecordBuffer:
    """Collects records of one width outside the heap, a few at a time."""

    def __init__(self, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._memory = mmap.mmap(-1, FIRST_BYTES)
        self._size = 0

    def add(self, records: NDArray[np.bytes_]) -> None:
        data = records.astype(self._dtype, copy=False).tobytes()
        if self._size + len(data) > len(self._memory):
            larger = mmap.mmap(-1, 2 * (self._size + len(data)))  # pages take memory only once they are written
            larger[: self._size] = memoryview(self._memory)[: self._size]
            self._memory = larger
        self._memory[self._size : self._size + len(data)] = data
        self._size += len(data)

    def whole(self) -> NDArray[np.bytes_]:
        """Returns all records in order, uncopied and writable. Nothing may be added afterwards."""
        return np.frombuffer(self._memory, self._dtype, self._size // self._dtype.itemsize)


class OnDisk:
    """Records of one width that come a few at a time, in any order, and are read in order: of however many, a few
    megabytes are in memory. They lie in a file in `folder`, or where the system has such files, that has no name.

    The file has sorted stretches, and of each it is known where each first byte begins; so records must be hashes.
    """

    def __init__(self, dtype: str, folder: str | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._file: IO[bytes] | None = None
        self._held: list[NDArray[np.bytes_]] = []
        self._starts_of_stretches: list[NDArray[np.int64]] = []
        self._waiting = self._written = 0
        self.most_bytes = 0
        """The most that was in memory at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, records: NDArray[np.bytes_]) -> None:
        self._held.append(records.astype(self._dtype, copy=False))
        self._waiting += records.nbytes
        if self._waiting >= HELD_BYTES:
            self._write()

    def in_order(self) -> Iterator[NDArray[np.bytes_]]:
        """Yields all records, sorted: 256 times those that begin with one byte, so equal ones come together. Nothing
        may be added afterwards."""
        if self._file is None:
            records = self._taken()
            yield from np.split(records, _starts(records)[1:-1])
            return
        self._write()
        for first in range(256):
            stretches = [self._read(int(starts[first]), int(starts[first + 1])) for starts in self._starts_of_stretches]
            records = np.concatenate(stretches)
            self.most_bytes = max(self.most_bytes, 2 * records.nbytes)  # the stretches are there still
            records.sort()
            yield records

    def _taken(self) -> NDArray[np.bytes_]:
        """What is held, sorted, and no longer held."""
        records = np.concatenate([np.zeros(0, self._dtype), *self._held])
        self._held.clear()
        self._waiting = 0
        self.most_bytes = max(self.most_bytes, 2 * records.nbytes)
        records.sort()
        return records

    def _write(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by __exit__)
        records = self._taken()
        self._starts_of_stretches.append(self._written + _starts(records))
        self._file.write(records.tobytes())
        self._written += len(records)

    def _read(self, start: int, end: int) -> NDArray[np.bytes_]:
        assert self._file is not None
        self._file.seek(start * self._dtype.itemsize)
        return np.frombuffer(self._file.read((end - start) * self._dtype.itemsize), self._dtype)


def _starts(records: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Returns where the records of each first byte begin in the sorted `records`, and where the last ones end."""
    first_bytes = np.array([bytes([first]) for first in range(256)], records.dtype)
    return np.append(np.searchsorted(records, first_bytes), len(records))


def give_back() -> None:
    """Returns freed memory to the system. Call it between steps, because it takes milliseconds."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only GNU's C library has this call; others keep less
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def few_heaps() -> None:
    """Keeps the threads that start from now on to two heaps, unless the environment says otherwise.

    GNU's C library gives each thread a heap of its own, up to eight for each core, and every heap keeps what its thread
    let go: in a driver on Ray, whose core has dozens of threads, 40 MiB over an audit of a million images.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").mallopt(_M_ARENA_MAX, 2)
