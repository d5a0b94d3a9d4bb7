"""Messages between a stage's processes and its driver while it runs: answered rows, time, deaths, the signal to stop.

They go through the key-value store of the Ray cluster, to which every process is connected, so that no extra process is
needed and no node's death loses them. This module knows neither rows nor models. A call takes about a millisecond, so a
process reports at most every `EVERY_S`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ray.experimental import internal_kv

from c2b_ray.engine.progress import Record
from c2b_ray.errors import ServiceError

NAMESPACE = "c2b_ray"
EVERY_S = 0.5
LOADING = "loading"


class StageStopped(Exception):
    """Raised where the driver has ended the stage: no more batches are to be computed."""


@dataclass(frozen=True)
class Reports:
    """The reports of one stage, named `stage`. It can be sent to workers."""

    stage: str

    # The driver's side.

    def open_rows(self) -> int:
        """Returns the number of answered rows in blocks that no process has finished yet."""
        return sum(int(internal_kv._internal_kv_get(key, namespace=NAMESPACE) or 0) for key in self._keys("open"))

    def records(self) -> list[Record]:
        """Returns what each process has reported of the time that it spent."""
        stored = (internal_kv._internal_kv_get(key, namespace=NAMESPACE) for key in self._keys("busy"))
        return [Record.loads(value) for value in stored if value]

    def stop(self) -> None:
        """Ends every process of the stage after its current batch."""
        self._put("stop", "")

    def clear(self) -> None:
        """Deletes the stage's messages except the signal to stop: a process on another node may still be at work."""
        for kind in ("open", "busy", "at", "death", "attempt"):
            internal_kv._internal_kv_del(f"{self.stage}/{kind}/", del_by_prefix=True, namespace=NAMESPACE)

    # A process's side.

    def stopped(self) -> bool:
        return bool(internal_kv._internal_kv_exists(f"{self.stage}/stop", namespace=NAMESPACE))

    def put_open(self, process: str, rows: int) -> None:
        self._put(f"open/{process}", str(rows))

    def put_record(self, process: str, record: Record) -> None:
        """Notes the time that this process has spent."""
        self._put(f"busy/{process}", record.dumps())

    def begin(self, process: str, what: str) -> None:
        """Notes what this process works on. If it dies, its successor reads that here."""
        self._put(f"at/{process}/{what}", "")

    def end(self, process: str, what: str) -> None:
        internal_kv._internal_kv_del(f"{self.stage}/at/{process}/{what}", namespace=NAMESPACE)

    def deaths_before(self, process: str) -> dict[str, int]:
        """Returns what the predecessor of this process worked on when it died, and how often that work has killed a
        process of the stage, on any node.

        A predecessor is a process that Ray restarted under the same name. Empty at a first start.
        """
        counts = {}
        for key in self._keys(f"at/{process}"):
            work = key.rpartition("/")[2]
            self._put(f"death/{work}/{uuid.uuid4().hex}", "")
            counts[work] = len(self._keys(f"death/{work}"))
            self.end(process, work)
        return counts

    def attempt(self, what: str) -> int:
        """Notes that a task begins `work`; returns how many tasks began it before and did not succeed: they died."""
        attempts = len(self._keys(f"attempt/{what}"))
        self._put(f"attempt/{what}/{uuid.uuid4().hex}", "")
        return attempts

    def succeeded(self, what: str) -> None:
        internal_kv._internal_kv_del(f"{self.stage}/attempt/{what}/", del_by_prefix=True, namespace=NAMESPACE)

    def forgive(self, what: str) -> None:
        """Deletes the deaths at `work`, which has succeeded since."""
        internal_kv._internal_kv_del(f"{self.stage}/death/{what}/", del_by_prefix=True, namespace=NAMESPACE)

    def _put(self, key: str, value: str) -> None:
        internal_kv._internal_kv_put(f"{self.stage}/{key}", value, namespace=NAMESPACE)

    def _keys(self, kind: str) -> list[str]:
        return [key.decode() for key in internal_kv._internal_kv_list(f"{self.stage}/{kind}/", namespace=NAMESPACE)]


class Reporter:
    """One process's reports: how many rows it has answered, what it works on, and whether it has to stop."""

    def __init__(self, reports: Reports, process: str, most_deaths: int, record: Callable[[], Record]) -> None:
        """`record`: returns the time that this process has spent. Raises ServiceError where the work at which its
        predecessors died has killed more than `most_deaths` processes."""
        self._reports, self._process, self._record = reports, process, record
        self._lock = threading.Lock()
        self._open, self._reported_at, self._stopped = 0, 0.0, False
        deaths = reports.deaths_before(process)
        reports.put_open(process, 0)
        for work, count in deaths.items():
            if count > most_deaths:
                when = "while it loaded" if work == LOADING else "over the same rows"
                raise ServiceError(
                    f"the process that runs the model died {count} times {when}, most often for want of memory; make "
                    "batches smaller or give it more memory, and run again to go on"
                )

    @contextmanager
    def loading(self) -> Iterator[None]:
        with self._at(LOADING):
            yield
        self._reports.forgive(LOADING)

    @contextmanager
    def block(self, name: str, rows: int) -> Iterator[None]:
        """Wraps the work on a block of `rows` rows. When it ends, all are answered and leave the count of open rows."""
        self._look()
        with self._at(name):
            yield
        with self._lock:
            self._open -= rows
            remaining = self._open
        # Before the block leaves, so that the driver never counts its rows twice.
        self._reports.put_open(self._process, remaining)
        self._reports.put_record(self._process, self._record())

    @contextmanager
    def _at(self, work: str) -> Iterator[None]:
        self._reports.begin(self._process, work)
        try:
            yield
        finally:  # also where it raises, which is not a death
            self._reports.end(self._process, work)

    def answered(self, rows: int) -> None:
        """Counts the rows of a batch that was answered. Raises Stopped where the driver has ended the stage."""
        with self._lock:
            self._open += rows
            if time.monotonic() - self._reported_at < EVERY_S:
                return
            self._reported_at = time.monotonic()
            waiting = self._open
        self._reports.put_open(self._process, waiting)
        self._reports.put_record(self._process, self._record())
        self._look()

    def check(self) -> None:
        """Raises Stopped where this process already knows that the driver has ended the stage. Called before each
        batch; costs nothing."""
        if self._stopped:
            raise StageStopped

    def _look(self) -> None:
        self._stopped = self._stopped or self._reports.stopped()
        self.check()
