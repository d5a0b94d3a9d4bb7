"""One writer at a time on a local disk: a lock file that a process holds, and that its death releases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from c2b_ray.errors import BusyRunError

LOCK = ".lock"


@contextmanager
def only_writer(directory: str | Path, location: str, activity: str) -> Iterator[None]:
    """Holds the lock of a directory that exists. BusyRunError where another process does: "`location`: another process
    is `activity`". OSError where the lock cannot be made."""
    lock = FileLock(f"{directory}/{LOCK}", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyRunError(
            f"{location}: another process is {activity}; wait for it to end, or stop it", run=location
        ) from None
    try:
        yield
    finally:
        lock.release()
