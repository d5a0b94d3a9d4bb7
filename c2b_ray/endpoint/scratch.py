"""A process's folder for temporary files. Another process removes it where its owner was killed.

    <TMPDIR>/<prefix><random>       locked for as long as its owner lives

It knows folders and locks, not what is in them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


class ScratchFolder:
    """A new, empty folder below TMPDIR, until `close`. Removes first the folders with this `prefix` of this user whose
    owners are dead."""

    def __init__(self, prefix: str) -> None:
        _sweep(prefix)
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix)
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # another process took it, before it was locked, for a dead one's
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.isdir(self.path):
                    return
            os.close(self._lock)  # another process is just taking it

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is gone, or its owner lives (BlockingIOError)
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.getuid():
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)
