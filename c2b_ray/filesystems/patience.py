"""Repeats requests to an object store that is busy, or whose connections break, until `C2B_S3_TIMEOUT` has passed.

The clients' own retries end after two or three seconds; a store that asks a thousand writers to slow down needs longer.
This module knows which refusals may pass, not what is read or written. A call must be repeatable, such as a read, or
a put of the same bytes. `open_input` repeats the opening of a file and each read of it, `file_info` a look at what
there is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from c2b_ray.filesystems import passes, s3

T = TypeVar("T")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0


def patiently(location: str | Path, call: Callable[[], T], reached: bool = False) -> T:
    """Returns the result of `call`, which is repeated while the S3 store of `location` is busy. Raises its last error.

    `reached`: the store has answered before, so failures to connect are repeated, too. Otherwise they are errors at
    once, because the endpoint may be wrong.
    """
    if not str(location).startswith(s3.SCHEME):
        return call()
    deadline = time.monotonic() + s3.timeout()
    pause = FIRST_PAUSE_S
    refusals: tuple[type[Exception], ...] = (OSError, *s3.refusals())
    while True:
        try:
            return call()
        except refusals as error:
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 — writers refused together retry apart
            if not passes(error, reached) or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def removed(location: str | Path, remove: Callable[[], None]) -> None:
    """Calls `remove` patiently. What is gone at a later attempt was removed by an earlier one whose answer was lost."""
    again = False

    def attempt() -> None:
        nonlocal again
        try:
            remove()
        except FileNotFoundError:
            if not again:
                raise
        finally:
            again = True

    patiently(location, attempt)


def open_input(filesystem: fs.FileSystem, path: str) -> pa.NativeFile:
    """Opens a file to read at any place of it. Opening and reading are patient where it is an object of S3."""
    if not isinstance(filesystem, fs.S3FileSystem):
        return filesystem.open_input_file(path)
    uri = s3.SCHEME + path
    return pa.PythonFile(_Object(uri, patiently(uri, lambda: filesystem.open_input_file(path))), "r")


def file_info(filesystem: fs.FileSystem, what: str | list[str] | fs.FileSelector) -> Any:
    """Returns what `filesystem.get_file_info` does, patiently."""
    location = s3.SCHEME if isinstance(filesystem, fs.S3FileSystem) else ""
    return patiently(location, lambda: filesystem.get_file_info(what))


class _Object:
    """A file of a store whose reads are repeated; Python's protocol of a file, as far as `pyarrow.PythonFile` needs it.

    Each read says where it begins: after a failure, the stream's own position is unknown.
    """

    def __init__(self, uri: str, stream: pa.NativeFile) -> None:
        self._uri, self._stream, self._size, self._at = uri, stream, stream.size(), 0

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, most: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if most < 0 else min(most, left)
        data = patiently(self._uri, lambda: self._stream.read_at(wanted, self._at), reached=True) if wanted else b""
        self._at += len(data)
        return bytes(data)
