"""One writer of a directory at a time: a file lock on a local disk, a lease on an object store. It knows no run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout
from pyarrow import fs

from c2b_ray.errors import RunError
from c2b_ray.filesystems import resolve
from c2b_ray.store import files, lease

LOCK = ".lock"
FILES = (LOCK, lease.NAME)
"""What it leaves in the directory."""


@contextmanager
def single_writer(location: str) -> Iterator[Callable[[], None]]:
    """Yields what raises a RunError once another process has taken over, as it can on an object store."""
    filesystem, path = resolve(location)
    if not isinstance(filesystem, fs.LocalFileSystem):
        with lease.held(location) as still_ours:
            yield still_ours
        return
    lock = FileLock(f"{path}/{LOCK}", timeout=0)
    with files.refusals(location):
        try:
            lock.acquire()
        except Timeout as error:
            raise RunError(
                f"{location}: another process is writing this run; wait for it or stop it", run=location
            ) from error
    try:
        yield lambda: None
    finally:
        lock.release()
