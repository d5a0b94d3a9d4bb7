"""Allows one writer at a time in a local directory, by a lock file that the death of its process releases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from c2b_ray.errors import BusyRunError

LOCK = ".lock"


@contextmanager
def only_writer(directory: str | Path, location: str, activity: str) -> Iterator[None]:
    """Holds the lock of an existing directory.

    Raises BusyRunError if another process holds it: "`location`: another process is `activity`". Raises OSError if the
    lock cannot be created.
    """
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
