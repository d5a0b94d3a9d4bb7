"""Memory for data collected from millions of rows, which the process returns to the system afterwards.

The heap keeps freed memory that lies below memory in use: a driver that counted a million ids kept twice their size for
as long as it lived. This module knows bytes and allocators, not their content.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FIRST_BYTES = 2**20


class Gathered:
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


def give_back() -> None:
    """Returns freed memory to the system. Call it between steps, because it takes milliseconds."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only GNU's C library has this call; others keep less
        ctypes.CDLL("libc.so.6").malloc_trim(0)
