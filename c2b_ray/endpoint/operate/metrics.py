"""Metrics for Prometheus: the counters of this process, and gauges of the ledger, read at each scrape.

Processes that share a ledger show the same gauges: take the `max` over processes, not the sum. If the ledger does not
answer, `c2b_database_up` is 0 and the other gauges are absent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from sqlalchemy import Select, and_, case, func, or_, select

from c2b_ray.endpoint import counters
from c2b_ray.endpoint.ledger import running, tables
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, SchemaError, Transaction
from c2b_ray.errors import ConfigError, ServiceError

__all__ = ["CONTENT_TYPE", "Gauges", "exposed", "registry", "served"]

REMEMBERED_S = 2.0
DAY_S = 86_400.0
_jobs, _deliveries, _events = tables.jobs.c, tables.deliveries.c, tables.events.c


@dataclass(frozen=True)
class LedgerReading:
    """The ledger at one moment. `queue_age`: the longest time in seconds that a job has waited; a job that yielded
    waits since then. `slots`: slots of runners that are alive. `deliveries`: pending ones, and those settled today."""

    jobs: dict[str, int]
    queue_age: float
    busy: int
    slots: int
    dispatcher_lease: float
    deliveries: dict[str, int]


class Gauges:
    """Collects a ledger's gauges. It is safe to use from several threads, and reads the ledger at most once in
    `seconds`."""

    def __init__(
        self, db: Database, seconds: float = REMEMBERED_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._db, self._seconds, self._clock = db, seconds, clock
        self._lock = threading.Lock()
        self._last: LedgerReading | None = None
        self._read = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registering the collector does not read the ledger."""
        return ()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if self._clock() - self._read >= self._seconds:
                try:
                    self._last = read(self._db)
                except (DatabaseDownError, SchemaError):
                    self._last = None
                self._read = self._clock()
            reading = self._last
        yield _gauge("c2b_database_up", "Whether the ledger's database answers.", float(reading is not None))
        if reading is not None:
            yield from _families(reading)


def read(db: Database) -> LedgerReading:
    with db.reading() as tx:
        now = tx.now
        states = {"queued": 0, "running": 0, **_counted(tx, select(_jobs.state, func.count()).where(tables.OPEN)
                                                       .group_by(_jobs.state))}  # fmt: skip
        oldest = tx.scalar(_waiting_since(now))
        busy = tx.scalar(select(func.count()).where(tables.OPEN, _jobs.state == "running", ~running.lapsed(tx)))
        recent = or_(_deliveries.state == "pending", _deliveries.next_at > now - DAY_S)
        deliveries = _counted(tx, select(_deliveries.state, func.count()).where(recent).group_by(_deliveries.state))
    leader = running.lease_holder(db, running.DISPATCHER)
    return LedgerReading(
        jobs=states,
        queue_age=0.0 if oldest is None else max(0.0, now - float(oldest)),
        busy=int(busy or 0),
        slots=len(running.live_leases(db, running.SLOT)),
        dispatcher_lease=0.0 if leader is None else max(0.0, leader.until - now),
        deliveries={"pending": 0, "delivered": 0, "given_up": 0, **deliveries},
    )


def registry(db: Database) -> CollectorRegistry:
    """Returns the registry of all metrics of a process."""
    result = CollectorRegistry()
    for counter in counters.EVERY:
        result.register(counter)
    result.register(Gauges(db))
    ProcessCollector(registry=result)
    return result


def exposed(collectors: CollectorRegistry) -> bytes:
    """Returns the metrics in Prometheus' text format."""
    return generate_latest(collectors)


@contextmanager
def served(db: Database, listen: str | None) -> Iterator[None]:
    """Answers GET /metrics at HOST:PORT, for a process without an API. None: no server."""
    if listen is None:
        yield
        return
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError("metrics", f"{listen[:100]!r} is not HOST:PORT, such as 127.0.0.1:9420")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry(db))
    except OSError as error:
        raise ServiceError(f"metrics: {listen}: cannot listen there: {error.strerror or error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _waiting_since(now: float) -> Select[tuple[float]]:
    """Selects the earliest time since which a job that may run has waited."""
    last = select(func.max(_events.at)).where(_events.job_id == _jobs.id).correlate(tables.jobs).scalar_subquery()
    queued_at = case(
        (and_(_jobs.slices == 0, _jobs.attempt == 0), _jobs.created), else_=func.coalesce(last, _jobs.created)
    )
    waiting_since = case(
        (and_(_jobs.not_before.is_not(None), _jobs.not_before > queued_at), _jobs.not_before), else_=queued_at
    )
    is_due = or_(_jobs.not_before.is_(None), _jobs.not_before <= now)
    return select(func.min(waiting_since)).where(tables.OPEN, _jobs.state == "queued", is_due)


def _counted(tx: Transaction, statement: Select[tuple[str, int]]) -> dict[str, int]:
    rows: Iterable[Any] = tx.execute(statement)
    return {str(name): int(count) for name, count in rows}


def _families(reading: LedgerReading) -> Iterator[Metric]:
    yield _by("c2b_jobs", "Jobs that wait or run.", "state", reading.jobs)
    yield _gauge("c2b_queue_age_seconds", "Seconds that a job has waited for, at the longest.", reading.queue_age)
    free = max(0, reading.slots - reading.busy)
    slots = {"busy": reading.slots - free, "free": free}
    yield _by("c2b_runner_slots", "Jobs that runners which are alive can run at once.", "state", slots)
    yield _gauge(
        "c2b_dispatcher_lease_seconds", "Until the lease lapses of the dispatcher that leads.", reading.dispatcher_lease
    )
    yield _by("c2b_deliveries", "Deliveries to webhooks: pending, or settled today.", "state", reading.deliveries)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _by(name: str, words: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
