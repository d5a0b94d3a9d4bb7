"""One slice of a job, seen by the runner: from the claim to the report of its end to the ledger.

    each tick        reads the orders (cancel, yield)
    each second      writes progress and use
    lease/3          renews the lease, and checks the job's key and its tenant's quotas
    a commit         is granted if the ledger says that this runner still holds the job
    database down    the process goes on for some seconds, then ends its slice; it may commit while the lease lasts
    fenced off       the process is killed, and nothing more is written

This module knows the ledger and a process, and does not choose jobs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint import counters
from c2b_ray.endpoint.booking import models_of
from c2b_ray.endpoint.clocks import now
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.job import Claim, Failure, FencedError, LeaseReply
from c2b_ray.endpoint.work.fairness import SliceUse, booked_before
from c2b_ray.endpoint.work.process import FENCED_STATUS, JobProcess
from c2b_ray.endpoint.work.progress import ClaimEnd, book_asked_run, key_problem, quota_problem
from c2b_ray.endpoint.work.protocol import (
    LeaseExtended,
    MayCommit,
    Permission,
    Problem,
    ProtocolError,
    Start,
    StepReport,
    StopOrder,
    WorkEnded,
)

TICK_S = 0.5
WRITE_S = 1.0
"""Seconds between two writes of progress, at least."""
KEPT_TO_END = 0.5
"""The share of a lease that is kept, while the database is down, for the process to write its results and to end. Until
then it goes on: most outages are shorter, and models take long to load."""
PATIENCE_S = 30.0
"""Seconds that a process may take to end before it is killed."""
_WARNINGS = 50

_log = logging.getLogger(__name__)


class JobRun:
    """A claimed job and its process. `by_clock`: measure wall-clock time as use, because models answer in other
    processes."""

    def __init__(
        self, db: Database, claim: Claim, process: JobProcess, start: Start, config: EndpointConfig, by_clock: bool
    ) -> None:
        self._db, self._job, self._fence, self._process = db, claim.job, claim.fence, process
        self._start, self._lease_s, self._by_clock = start, config.runners.lease_seconds, by_clock
        self._quotas = config.quotas
        self._models = models_of(db, claim.job.tenant_id, claim.job.kind, claim.job.config)
        self._account = SliceUse(self._models, before=booked_before(claim))
        self._until = start.until
        self._began, self._at_first = now(), process.cpu_seconds()
        self._wrote = float("-inf")
        self._ticked = self._renewed = start.until - self._lease_s
        self._wanted: str | None = None
        self._wanted_since = 0.0
        self._reason: Failure | None = None
        self._warnings = 0
        self._down = False
        self._stop = threading.Event()

    def run(self, settling: ClaimEnd, stop: threading.Event) -> None:
        """Runs the whole slice, up to the report of its end to the ledger.

        `stop`: set when the runner ends, which ends the slice. Raises DatabaseDownError if the slice cannot start.
        """
        self._stop = stop
        try:
            self._account.measure(self._start.out)
            self._process.send(self._start)
            self._hold()
            message = self._supervise()
            self._process.reap(PATIENCE_S)
        except FencedError as error:
            _log.warning("%s; its process is killed", error)
            self._process.kill()
            return
        except ProtocolError as error:
            _log.error("%s: %s; its process is killed", self._job.id, error)
            message = None
        finally:
            counters.busy(self._job.id, "", {})
        status = self._process.kill()
        self._measure()
        self._account.measure(self._start.out)
        if message is not None:
            self._account.end(message)
        if self._job.kind == "question":
            book_asked_run(self._db, self._job, self._start.config["run"])
        settling.settle(self._account, self._last(message, status), self._reason)

    def _supervise(self) -> WorkEnded | None:
        """Answers the process until it reports its end, and returns that report; None if the process died."""
        while True:
            try:
                message = self._process.hear(max(0.0, self._ticked + TICK_S - now()))
            except EOFError:
                return None
            if isinstance(message, WorkEnded):
                return message
            if isinstance(message, MayCommit):
                self._process.send(Permission(number=message.number, granted=self._may_commit()))
            elif isinstance(message, StepReport):
                self._hear(message)
            if now() >= self._ticked + TICK_S:
                self._tick()

    def _hear(self, message: StepReport) -> None:
        self._account.tell(message)
        counters.drawn(message.counts)
        if message.kind != "warning":
            counters.busy(self._job.id, message.step, {} if message.kind == "end" else message.busy)
        if message.kind == "warning" and self._warnings < _WARNINGS:
            self._warnings += 1
            self._attempted(lambda: jobs.report(self._db, self._job.id, self._fence, "warning", {"text": message.step}))

    def _tick(self) -> None:
        self._ticked = now()
        self._measure()
        if self._ticked >= self._renewed + self._lease_s / 3:
            self._account.measure(self._start.out)
            self._attempted(self._hold)
        if self._account.worth_writing and self._ticked >= self._wrote + WRITE_S:
            self._attempted(self._write)
        elif self._renewed < self._ticked:
            self._attempted(lambda: self._obey(jobs.check_fence(self._db, self._job.id, self._fence)))
        if self._stop.is_set():
            self._want("yield")
        if self._ticked >= self._until:
            raise FencedError(f"{self._job.id}: its lease of {self._lease_s:g} s ran out while the database was down")
        if self._wanted and self._ticked - self._wanted_since > PATIENCE_S:
            _log.warning("%s did not end within %g s of the order; its process is killed", self._job.id, PATIENCE_S)
            self._process.send_kill()

    def _attempted(self, change: Callable[[], object]) -> None:
        """Calls a function that needs the database; if that stays down, asks the process to end its slice."""
        try:
            change()
            self._down = False
        except DatabaseDownError as error:
            if not self._down:
                _log.warning("%s; %s goes on for now", error, self._job.id)
            self._down = True
            if self._wanted is None and now() >= self._until - KEPT_TO_END * self._lease_s:
                _log.warning("%s; %s ends its slice and waits", error, self._job.id)
                self._want("yield")
        except FencedError:
            # The lease may only seem to have passed, because a clock was set: it is ours until somebody takes it.
            self._hold()

    def _hold(self) -> None:
        """Renews the lease. Raises FencedError if another runner has the job."""
        renewed_at = now()
        orders = jobs.renew(self._db, self._job.id, self._fence, self._lease_s)
        self._renewed, self._until = renewed_at, renewed_at + self._lease_s
        self._process.send(LeaseExtended(until=self._until))
        problem = key_problem(self._db, self._job) or quota_problem(
            self._db, self._job.tenant_id, self._models, self._quotas
        )
        if problem is not None:
            self._reason = problem
            self._want("cancel")
        self._obey(orders)

    def _write(self) -> None:
        progress, self._wrote = self._account.progress(), now()
        orders = jobs.progress(self._db, self._job.id, self._fence, progress)
        self._account.booked()
        self._obey(orders)

    def _may_commit(self) -> bool:
        """Returns whether the process may commit. While the database is down, it may until the lease passes: nobody
        else can claim the job before."""
        try:
            self._attempted(lambda: self._obey(jobs.check_fence(self._db, self._job.id, self._fence)))
        except FencedError:
            return False
        return now() < self._until

    def _obey(self, orders: LeaseReply) -> None:
        if orders.cancel:
            self._want("cancel")
        elif orders.yield_:
            self._want("yield")

    def _want(self, order: str) -> None:
        if self._wanted in (order, "cancel"):
            return
        if self._wanted is None:
            self._wanted_since = now()
        self._wanted = order
        self._process.send(StopOrder(what="cancel" if order == "cancel" else "yield"))

    def _measure(self) -> None:
        seconds = now() - self._began if self._by_clock else self._process.cpu_seconds() - self._at_first
        self._account.seconds = max(self._account.seconds, seconds)

    def _last(self, message: WorkEnded | None, status: int) -> WorkEnded:
        """Returns the end to report. A process that was killed because it did not end on request counts as ended as
        requested."""
        if message is not None and message.how != "fenced":
            return message
        if self._wanted is not None and self._ticked - self._wanted_since > PATIENCE_S:
            return WorkEnded(how="cancelled" if self._wanted == "cancel" else "yielded")
        _log.warning("%s: its process died with status %d", self._job.id, status)
        return without_a_word(status)


def without_a_word(status: int) -> WorkEnded:
    """Returns how a process ended that sent no report. One that stopped because its lease passed, with the database
    down or the machine too busy, did nothing wrong: its slice ended, and no death of the job is counted."""
    return WorkEnded(how="yielded") if status == FENCED_STATUS else WorkEnded(how="failed", problem=died(status))


def died(status: int) -> Problem:
    """Explains, from its exit status, why a job's process ended without a report."""
    if status == -9:
        detail = "It was killed, most likely because memory ran out: use smaller batches or a smaller model."
    elif status < 0:
        detail = f"Signal {-status} ended it, probably a fault in a library; tell the operator."
    else:
        detail = f"It ended with status {status} and no message; tell the operator."
    return Problem(title="The job's process died", detail=detail, again=True)
