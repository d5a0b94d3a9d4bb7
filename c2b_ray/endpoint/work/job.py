"""One slice of a job: the runner's side of its process, from the claim to the report of its end to the ledger.

    a tick           what is wanted of the job (cancel, yield); each second how far it is, and what it used
    a third of it    the lease is renewed, and its key is looked at
    a commit         is granted where the ledger says that the job is still ours
    database down    the process goes on for some seconds, then ends its slice; it may commit while the lease lasts
    fenced off       the process is killed; nothing is written any more

It knows the ledger and a process, not how jobs are chosen.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from c2b_ray.endpoint import counters
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.job import Claim, Failure, FencedError, Orders
from c2b_ray.endpoint.work.accounting import Account, booked_before, models_of
from c2b_ray.endpoint.work.process import JobProcess
from c2b_ray.endpoint.work.protocol import (
    Ended,
    Held,
    MayCommit,
    Order,
    Permission,
    Problem,
    ProtocolError,
    Start,
    StepReport,
)
from c2b_ray.endpoint.work.settling import Settling, key_problem
from c2b_ray.endpoint.work.stopping import now

TICK_S = 0.5
WRITE_S = 1.0
"""How far it is, is written at most so often."""
KEPT_TO_END = 0.5
"""Of a lease: what is left of it, where the database stays away, for the process to write what it has and to end. Until
then it goes on: most outages are shorter, and models take long to load."""
PATIENCE_S = 30.0
"""How long a process may take to end before it is killed."""
_WARNINGS = 50

_log = logging.getLogger(__name__)


class JobRun:
    """A claimed job and its process. `by_clock`: whether models answer elsewhere, so that time is what they used."""

    def __init__(
        self, db: Database, claim: Claim, process: JobProcess, start: Start, lease_seconds: float, by_clock: bool
    ) -> None:
        self._db, self._job, self._fence, self._process = db, claim.job, claim.fence, process
        self._start, self._lease_s, self._by_clock = start, lease_seconds, by_clock
        models = models_of(claim.job.kind, claim.job.config)
        self._account = Account(models, before=booked_before(claim))
        self._until = start.until
        self._began, self._at_first = now(), process.cpu_seconds()
        self._wrote = float("-inf")
        self._ticked = self._renewed = start.until - lease_seconds
        self._wanted: str | None = None
        self._wanted_since = 0.0
        self._reason: Failure | None = None
        self._warnings = 0
        self._down = False
        self._stop = threading.Event()

    def run(self, settling: Settling, stop: threading.Event) -> None:
        """The whole slice, up to the report of its end to the ledger. `stop`: the runner is to end, and the slice with
        it. DatabaseDownError where it cannot even begin."""
        self._stop = stop
        try:
            self._account.measure(self._start.out)
            self._process.send(self._start)
            self._hold()
            ended = self._supervise()
            self._process.reap(PATIENCE_S)
        except FencedError as error:
            _log.warning("%s; its process is killed", error)
            self._process.kill()
            return
        except ProtocolError as error:
            _log.error("%s: %s; its process is killed", self._job.id, error)
            ended = None
        status = self._process.kill()
        self._measure()
        self._account.measure(self._start.out)
        if ended is not None:
            self._account.end(ended)
        settling.settle(self._account, self._last(ended, status), self._reason)

    def _supervise(self) -> Ended | None:
        """Answers the process until it says how it ended; None where it died."""
        while True:
            try:
                said = self._process.hear(max(0.0, self._ticked + TICK_S - now()))
            except EOFError:
                return None
            if isinstance(said, Ended):
                return said
            if isinstance(said, MayCommit):
                self._process.send(Permission(number=said.number, granted=self._may_commit()))
            elif isinstance(said, StepReport):
                self._hear(said)
            if now() >= self._ticked + TICK_S:
                self._tick()

    def _hear(self, message: StepReport) -> None:
        self._account.tell(message)
        counters.drawn(message.counts)
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
            raise FencedError(f"{self._job.id}: its lease of {self._lease_s:g} s ran out, for want of a database")
        if self._wanted and self._ticked - self._wanted_since > PATIENCE_S:
            _log.warning("%s did not end in %g s when told to; its process is killed", self._job.id, PATIENCE_S)
            self._process.kill_only()

    def _attempted(self, change: Callable[[], object]) -> None:
        """Does what needs the database; where that stays down, the process is to end its slice."""
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
            # A lease that seems to have passed, since a clock was set, is ours as long as nobody took it.
            self._hold()

    def _hold(self) -> None:
        """Renews the lease. FencedError where another has the job."""
        renewed_at = now()
        orders = jobs.renew(self._db, self._job.id, self._fence, self._lease_s)
        self._renewed, self._until = renewed_at, renewed_at + self._lease_s
        self._process.send(Held(until=self._until))
        problem = key_problem(self._db, self._job)
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
        """While the database is down nobody else can claim the job before the lease has passed."""
        try:
            self._attempted(lambda: self._obey(jobs.check_fence(self._db, self._job.id, self._fence)))
        except FencedError:
            return False
        return now() < self._until

    def _obey(self, orders: Orders) -> None:
        if orders.cancel:
            self._want("cancel")
        elif orders.yield_:
            self._want("yield")

    def _want(self, what: str) -> None:
        if self._wanted in (what, "cancel"):
            return
        if self._wanted is None:
            self._wanted_since = now()
        self._wanted = what
        self._process.send(Order(what="cancel" if what == "cancel" else "yield"))

    def _measure(self) -> None:
        used = now() - self._began if self._by_clock else self._process.cpu_seconds() - self._at_first
        self._account.seconds = max(self._account.seconds, used)

    def _last(self, ended: Ended | None, status: int) -> Ended:
        """What counts as its end: a process that was killed because it did not end on request counts as ended so."""
        if ended is not None and ended.how != "fenced":
            return ended
        if self._wanted is not None and self._ticked - self._wanted_since > PATIENCE_S:
            return Ended(how="cancelled" if self._wanted == "cancel" else "yielded")
        _log.warning("%s: its process died with status %d", self._job.id, status)
        return Ended(how="failed", problem=died(status))


def died(status: int) -> Problem:
    """Why a job's process ended without a word, as far as its exit status tells."""
    if status == -9:
        detail = "It was killed, most likely for want of memory: ask for smaller batches or a smaller model."
    elif status < 0:
        detail = f"It was ended by signal {-status}, as a fault in a library does; tell the operator."
    else:
        detail = f"It ended with status {status} and said nothing; tell the operator."
    return Problem(title="The job's process died", detail=detail, again=True)
