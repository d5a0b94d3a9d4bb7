"""A process that has imported what takes long, and waits for a job: one is always in reserve.

It is started as any job's process would be, before there is a job; it gets one job, and ends with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from c2b_ray.endpoint.work.process import JobProcess


class Spare:
    """`start`: starts such a process."""

    def __init__(self, start: Callable[[], JobProcess]) -> None:
        self._start = start
        self._process: JobProcess | None = None
        self._lock = threading.Lock()
        self._closed = False

    def prepare(self) -> None:
        with self._lock:
            if self._process is None and not self._closed:
                self._process = self._start()

    def take(self) -> JobProcess | None:
        """The one in reserve, if any; the caller has another prepared when it suits."""
        with self._lock:
            process, self._process = self._process, None
        return process

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process = None
