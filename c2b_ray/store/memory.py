"""Memory that a process takes for what it gathers of millions of rows, and gives back when it is through.

The heap keeps what is freed below anything that is still in use: a driver that counted a million ids held twice what
they take for as long as it lived. It knows bytes and allocators, nothing of what they hold.
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
    """Records of one width that come a few at a time, outside the heap."""

    def __init__(self, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._memory = mmap.mmap(-1, FIRST_BYTES)
        self._size = 0

    def add(self, records: NDArray[np.bytes_]) -> None:
        data = records.astype(self._dtype, copy=False).tobytes()
        if self._size + len(data) > len(self._memory):
            larger = mmap.mmap(-1, 2 * (self._size + len(data)))  # what is not written yet is not taken yet
            larger[: self._size] = memoryview(self._memory)[: self._size]
            self._memory = larger
        self._memory[self._size : self._size + len(data)] = data
        self._size += len(data)

    def whole(self) -> NDArray[np.bytes_]:
        """All records, in their order, uncopied and writable. Nothing may be added after."""
        return np.frombuffer(self._memory, self._dtype, self._size // self._dtype.itemsize)


def give_back() -> None:
    """Returns to the system what allocators keep for later; to be called between steps, for it takes milliseconds."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library than GNU's has no such call, and keeps less
        ctypes.CDLL("libc.so.6").malloc_trim(0)
