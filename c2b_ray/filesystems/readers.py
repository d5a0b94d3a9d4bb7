"""Reads many files, one after the other where the disk is fast and many at once where it is slow, and waits for none
without end.

A network folder whose server is gone blocks a process that reads from it for as long as the server is away, and nothing
can interrupt it. So files are read in threads of their own, which are left behind where one has had no answer for
`C2B_READ_TIMEOUT` seconds. This module knows time and threads, not files.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.filesystems import THREADS

TIMEOUT = "C2B_READ_TIMEOUT"
SECONDS = 60.0
SLOW_S = 0.001
"""Seconds per file from which on files are read at the same time: one that is in memory takes a fiftieth of it."""

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741


def timeout() -> float:
    """Returns the seconds to wait for a disk. Raises ConfigError for a setting that is no positive number."""
    text = os.environ.get(TIMEOUT, str(SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ConfigError(TIMEOUT, f"expected a number of seconds above 0, not {text!r}")
    return seconds


class Readers:
    """Reads files of one folder. Threads may share it.

    `patient`: whether what reads gives up by itself, as clients of object stores do; it is then waited for.
    """

    def __init__(self, patient: bool = False) -> None:
        self._seconds = math.inf if patient else timeout()
        self._threads = THREADS if patient else 1

    def map(self, read: Callable[[I], T], items: Sequence[I], name: Callable[[I], str]) -> list[T]:
        """Returns what `read` returns for each item, in their order. Raises what it raises.

        Raises SourceError where an item has no answer in time; `name` says where it lies.
        """
        if not items:
            return []
        work = _Work(read, items)
        for _ in range(min(self._threads, len(items))):
            threading.Thread(target=work.run, name="read", daemon=True).start()
        began = time.monotonic()
        while not work.over.wait(min(self._seconds / 4, 1.0)):
            if (item := work.waiting_for(self._seconds)) is not None:
                raise SourceError(
                    f"{name(item)}: no answer for {self._seconds:g} seconds: the disk or network folder that holds it "
                    "hangs; when it answers again, run the same command again, which resumes "
                    f"({TIMEOUT} sets the seconds)"
                )
        if work.failure is not None:
            raise work.failure
        if not math.isinf(self._seconds):
            slow = (time.monotonic() - began) * min(self._threads, len(items)) / len(items) > SLOW_S
            self._threads = THREADS if slow else 1
        return work.results


class _Work(Generic[I, T]):
    """Items that several threads read. The last thread to end sets `over`."""

    def __init__(self, read: Callable[[I], T], items: Sequence[I]) -> None:
        self._read, self._items = read, items
        self._numbers = itertools.count()
        self._left = len(items)
        self._lock = threading.Lock()
        self._began: dict[int, tuple[float, int]] = {}
        self.results: list[T] = [None] * len(items)  # type: ignore[list-item]
        self.failure: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        thread = threading.get_ident()
        while self.failure is None and (number := next(self._numbers)) < len(self._items):
            self._began[thread] = time.monotonic(), number
            try:
                self.results[number] = self._read(self._items[number])
            except BaseException as error:
                self.failure = error
                break
            with self._lock:
                self._left -= 1
        self._began.pop(thread, None)
        if self.failure is not None or not self._left:
            self.over.set()

    def waiting_for(self, seconds: float) -> I | None:
        """Returns an item that a thread began to read so many seconds ago or more."""
        now = time.monotonic()
        for began, number in list(self._began.values()):
            if now - began >= seconds:
                return self._items[number]
        return None
