"""Messages between the processes of a stage and its driver while it runs: rows answered, deaths, and to stop.

It goes through the key-value store of the Ray cluster, which every process is connected to, so that no process is
started for it and no node's death loses it. It knows neither rows nor models. A call takes about a millisecond, so a
process reports at most every `EVERY_S`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ray.experimental import internal_kv

from c2b_ray.errors import ServiceError

NAMESPACE = "c2b_ray"
EVERY_S = 0.5
LOADING = "loading"


class Stopped(Exception):
    """The driver has ended the stage: nothing more is to be computed."""


@dataclass(frozen=True)
class Reports:
    """The reports of one stage, named `stage`; it can be sent to workers."""

    stage: str

    # The driver's side.

    def open_rows(self) -> int:
        """Rows that were answered in blocks that no process has finished yet."""
        return sum(int(internal_kv._internal_kv_get(key, namespace=NAMESPACE) or 0) for key in self._keys("open"))

    def stop(self) -> None:
        """Ends every process of the stage after its current batch."""
        self._put("stop", "")

    def clear(self) -> None:
        """Forgets the stage, but that it was stopped: a process of it may still be at work on another node."""
        for kind in ("open", "at", "death"):
            internal_kv._internal_kv_del(f"{self.stage}/{kind}/", del_by_prefix=True, namespace=NAMESPACE)

    # A process's side.

    def stopped(self) -> bool:
        return bool(internal_kv._internal_kv_exists(f"{self.stage}/stop", namespace=NAMESPACE))

    def put_open(self, process: str, rows: int) -> None:
        self._put(f"open/{process}", str(rows))

    def begin(self, process: str, what: str) -> None:
        """Notes what this process is at: if it dies, its successor finds that here."""
        self._put(f"at/{process}/{what}", "")

    def end(self, process: str, what: str) -> None:
        internal_kv._internal_kv_del(f"{self.stage}/at/{process}/{what}", namespace=NAMESPACE)

    def deaths_before(self, process: str) -> dict[str, int]:
        """What the predecessor of this process, which Ray started anew under the same name, died of: what it was at,
        and how often that has now ended a process of the stage, on any node. Empty for a first start."""
        counts = {}
        for key in self._keys(f"at/{process}"):
            what = key.rpartition("/")[2]
            self._put(f"death/{what}/{uuid.uuid4().hex}", "")
            counts[what] = len(self._keys(f"death/{what}"))
            self.end(process, what)
        return counts

    def forgive(self, what: str) -> None:
        """Forgets deaths at `what`, which has gone well by now."""
        internal_kv._internal_kv_del(f"{self.stage}/death/{what}/", del_by_prefix=True, namespace=NAMESPACE)

    def _put(self, key: str, value: str) -> None:
        internal_kv._internal_kv_put(f"{self.stage}/{key}", value, namespace=NAMESPACE)

    def _keys(self, kind: str) -> list[str]:
        return [key.decode() for key in internal_kv._internal_kv_list(f"{self.stage}/{kind}/", namespace=NAMESPACE)]


class Reporter:
    """One process's reports: how many rows it has answered, what it is at, and whether it is to stop."""

    def __init__(self, reports: Reports, process: str, most_deaths: int) -> None:
        """ServiceError where what this process's predecessors died at has ended more than `most_deaths` of them."""
        self._reports, self._process = reports, process
        self._lock = threading.Lock()
        self._open, self._reported_at, self._stopped = 0, 0.0, False
        deaths = reports.deaths_before(process)
        reports.put_open(process, 0)
        for what, count in deaths.items():
            if count > most_deaths:
                when = "while it loaded" if what == LOADING else "over the same rows"
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
        """Around the work on a block; its rows, all answered at the end, are from then on on their way to a part."""
        self._look()
        with self._at(name):
            yield
        with self._lock:
            self._open -= rows
            left = self._open
        # Before the block leaves, so that the driver never counts its rows twice.
        self._reports.put_open(self._process, left)

    @contextmanager
    def _at(self, what: str) -> Iterator[None]:
        self._reports.begin(self._process, what)
        try:
            yield
        finally:  # also where it raises, which is not a death
            self._reports.end(self._process, what)

    def answered(self, rows: int) -> None:
        """After each batch. Stopped where the driver has ended the stage."""
        with self._lock:
            self._open += rows
            if time.monotonic() - self._reported_at < EVERY_S:
                return
            self._reported_at = time.monotonic()
            waiting = self._open
        self._reports.put_open(self._process, waiting)
        self._look()

    def check(self) -> None:
        """Before each batch: Stopped where this process knows that the driver has ended the stage. Costs nothing."""
        if self._stopped:
            raise Stopped

    def _look(self) -> None:
        self._stopped = self._stopped or self._reports.stopped()
        self.check()
