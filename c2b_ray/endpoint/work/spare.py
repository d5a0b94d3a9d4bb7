"""A process in reserve that has imported the slow modules and waits for a job.

It is started like any job's process, before there is a job; it gets one job, and ends with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from c2b_ray.endpoint.work.process import JobProcess


class Spare:
    """Keeps one process in reserve. `start`: starts such a process."""

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
        """Returns the process in reserve; None if there is none. The caller decides when to `prepare` another."""
        with self._lock:
            process, self._process = self._process, None
        return process

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process = None
