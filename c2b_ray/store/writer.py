"""Allows one writer of a directory at a time: by a file lock on a local disk, by a lease on an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from pyarrow import fs

from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.lock import LOCK, only_writer
from c2b_ray.store import files, lease

FILES = (LOCK, lease.NAME)
"""The files that it leaves in the directory."""


@contextmanager
def single_writer(location: str) -> Iterator[Callable[[], None]]:
    """Yields a function that raises RunError once another process has taken over, which can happen on an object
    store."""
    filesystem, path = resolve(location)
    if not isinstance(filesystem, fs.LocalFileSystem):
        with lease.held(location) as still_ours:
            yield still_ours
        return
    with ExitStack() as stack:
        with files.refusals(location):
            stack.enter_context(only_writer(path, location, "writing this run"))
        yield lambda: None
