"""A runner: claims granted jobs, runs each in its own process, and continues jobs whose runner was lost.

It holds the ledger's credentials; the processes of jobs do not. It holds a lease for each of its slots, from which the
dispatcher learns how many jobs can run. It does not choose jobs. Of each slice:

    each tick        reads the orders (cancel, yield)
    each second      writes progress and use
    lease/3          renews the lease, and checks the job's key and its tenant's quotas
    a commit         is granted if the ledger says that this runner still holds the job
    database down    the process goes on for some seconds, then ends its slice; it may commit while the lease lasts
    fenced off       the process is killed, and nothing more is written
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint import counters
from c2b_ray.endpoint.kinds import UNKNOWN, models_of
from c2b_ray.endpoint.ledger import running
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, steady_now
from c2b_ray.endpoint.ledger.running import SLOT, Lease
from c2b_ray.endpoint.ledger.tables import Claim, Failure, FencedError, Job, LeaseReply
from c2b_ray.endpoint.policy import copies
from c2b_ray.endpoint.policy.copies import ScratchFolder
from c2b_ray.endpoint.work.child import FENCED_STATUS, SPARE
from c2b_ray.endpoint.work.process import JobProcess, ProcessStarter, SpareProcess, inherit
from c2b_ray.endpoint.work.progress import ClaimEnd, SliceUse, book_asked_run, booked_before, key_problem, quota_problem
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
from c2b_ray.errors import ServiceError

# One slice of a job, seen by the runner: from the claim to the report of its end to the ledger.


TICK_S = 0.5
WRITE_S = 1.0
"""Seconds between two writes of progress, at least."""
KEPT_TO_END = 0.5
"""The share of a lease that is kept, while the database is down, for the process to write its results and to end. Until
then it goes on: most outages are shorter, and models take long to load."""
PATIENCE_S = 30.0
"""Seconds that a process may take to end before it is killed."""
_WARNINGS = 50


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
        self._began, self._at_first = steady_now(), process.cpu_seconds()
        self._wrote = float("-inf")
        self._ticked = self._renewed = start.until - self._lease_s
        self._wanted: str | None = None
        self._wanted_since = 0.0
        self._reason: Failure | None = None
        self._warnings = 0
        self._down = False
        self._stop = threading.Event()

    def run(self, end: ClaimEnd, stop: threading.Event) -> None:
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
        end.record(self._account, self._last(message, status), self._reason)

    def _supervise(self) -> WorkEnded | None:
        """Answers the process until it reports its end, and returns that report; None if the process died."""
        while True:
            try:
                message = self._process.receive(max(0.0, self._ticked + TICK_S - steady_now()))
            except EOFError:
                return None
            if isinstance(message, WorkEnded):
                return message
            if isinstance(message, MayCommit):
                self._process.send(Permission(number=message.number, granted=self._may_commit()))
            elif isinstance(message, StepReport):
                self._take_report(message)
            if steady_now() >= self._ticked + TICK_S:
                self._tick()

    def _take_report(self, message: StepReport) -> None:
        self._account.tell(message)
        counters.count_draws(message.counts)
        if message.kind != "warning":
            counters.busy(self._job.id, message.step, {} if message.kind == "end" else message.busy)
        if message.kind == "warning" and self._warnings < _WARNINGS:
            self._warnings += 1
            self._attempted(
                lambda: running.report(self._db, self._job.id, self._fence, "warning", {"text": message.step})
            )

    def _tick(self) -> None:
        self._ticked = steady_now()
        self._measure()
        if self._ticked >= self._renewed + self._lease_s / 3:
            self._account.measure(self._start.out)
            self._attempted(self._hold)
        if self._account.worth_writing and self._ticked >= self._wrote + WRITE_S:
            self._attempted(self._write)
        elif self._renewed < self._ticked:
            self._attempted(lambda: self._obey(running.check_fence(self._db, self._job.id, self._fence)))
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
            if self._wanted is None and steady_now() >= self._until - KEPT_TO_END * self._lease_s:
                _log.warning("%s; %s ends its slice and waits", error, self._job.id)
                self._want("yield")
        except FencedError:
            # The lease may only seem to have passed, because a clock was set: it is ours until somebody takes it.
            self._hold()

    def _hold(self) -> None:
        """Renews the lease. Raises FencedError if another runner has the job."""
        renewed_at = steady_now()
        orders = running.renew(self._db, self._job.id, self._fence, self._lease_s)
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
        progress, self._wrote = self._account.progress(), steady_now()
        orders = running.progress(self._db, self._job.id, self._fence, progress)
        self._account.booked()
        self._obey(orders)

    def _may_commit(self) -> bool:
        """Returns whether the process may commit. While the database is down, it may until the lease passes: nobody
        else can claim the job before."""
        try:
            self._attempted(lambda: self._obey(running.check_fence(self._db, self._job.id, self._fence)))
        except FencedError:
            return False
        return steady_now() < self._until

    def _obey(self, orders: LeaseReply) -> None:
        if orders.cancel:
            self._want("cancel")
        elif orders.yield_:
            self._want("yield")

    def _want(self, order: str) -> None:
        if self._wanted in (order, "cancel"):
            return
        if self._wanted is None:
            self._wanted_since = steady_now()
        self._wanted = order
        self._process.send(StopOrder(what="cancel" if order == "cancel" else "yield"))

    def _measure(self) -> None:
        seconds = steady_now() - self._began if self._by_clock else self._process.cpu_seconds() - self._at_first
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


SPARE_AFTER_S = 5.0
"""Seconds after a job took the spare process until another is prepared: the job's start needs the processor more."""

BROKEN = Problem(
    title="The runner failed", detail="It could not run this job; tell the operator, whose log says why.", again=True
)

_log = logging.getLogger(__name__)


def name_of_this_process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Runner:
    """Runs jobs. `log`: a file for the output of jobs' processes; None for this process's standard error."""

    def __init__(self, db: Database, config: EndpointConfig, owner: str, log: Path | None = None) -> None:
        self._db, self._config, self._owner = db, config, owner
        self._log: IO[bytes] | None = None if log is None else log.open("ab")
        self._scratch = ScratchFolder("c2b-runner-")
        self._starting = ProcessStarter(config, self._scratch.path, self._log)
        self._spare = SpareProcess(lambda: self._starting.process(SPARE)[0])
        self._threads: set[threading.Thread] = set()
        self._slots: dict[str, Lease] = {}
        self._held = float("-inf")
        self._spare_taken = float("-inf")
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set or an exception such as a signal's arrives. Jobs then end at their next batch and
        wait for another runner."""
        is_unreachable = False
        try:
            while not stop.wait(self._config.runners.poll_seconds):
                try:
                    self._look()
                    is_unreachable = False
                except DatabaseDownError as error:
                    if not is_unreachable:
                        _log.warning("%s; the runner waits", error)
                    is_unreachable = True
        finally:
            self._close()

    def _look(self) -> None:
        self._hold_slots()
        if self._config.runners.spare and steady_now() - self._spare_taken >= SPARE_AFTER_S:
            self._spare.prepare()
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        while len(self._threads) < self._config.runners.slots:
            claimed_at = steady_now()
            runners = self._config.runners
            claim = running.claim(self._db, self._owner, runners.lease_seconds, runners.attempts)
            if claim is None:
                break
            thread = threading.Thread(target=self._run, args=(claim, claimed_at), name=claim.job.id)
            self._threads.add(thread)
            thread.start()

    def _run(self, claim: Claim, claimed_at: float) -> None:
        """Runs a slice of a job; called in its own thread."""
        job, runners = claim.job, self._config.runners
        end = ClaimEnd(self._db, claim, runners.attempts, self._starting.run_path(job), self._stop)
        account = SliceUse([UNKNOWN])  # of a job that is not run, which used nothing
        process: JobProcess | None = None
        try:
            problem = key_problem(self._db, job)
            if problem is not None:
                end.record(account, WorkEnded(how="cancelled"), problem)
                return
            claim = inherit(self._db, claim, end.run_path)
            end = replace(end, claim=claim)
            process, note = self._started(job)
            if note:
                running.report(self._db, job.id, claim.fence, "warning", {"text": note})
            start = self._starting.start(job, claimed_at + runners.lease_seconds)
            run = JobRun(self._db, claim, process, start, self._config, by_clock=start.via == "serve")
            run.run(end, self._stop)
        except (DatabaseDownError, FencedError) as error:
            _log.warning("%s; %s waits for another claim", error, job.id)
        except ServiceError as error:
            end.record(account, WorkEnded(how="failed", problem=Problem(title="It is not run", detail=str(error))))
        except Exception:
            _log.exception("%s: its slice ended by an error of the runner", job.id)
            if process is not None:
                process.kill()
            end.record(account, WorkEnded(how="failed", problem=BROKEN))
        finally:
            if process is not None:
                process.kill()
                copies.sweep_copies()  # a killed process leaves its copies

    def _started(self, job: Job) -> tuple[JobProcess, str]:
        """Starts the job's process. A job that loads uploaded weights gets a new one without network; other jobs may
        take the spare process, which has network access."""
        if self._starting.loads_uploaded_weights(job):
            return self._starting.process(network=False)
        spare = self._spare.take()
        self._spare_taken = steady_now()
        return (spare, "") if spare is not None else self._starting.process()

    def _hold_slots(self) -> None:
        """Holds one lease per slot, by which the dispatcher counts slots."""
        seconds = self._config.runners.lease_seconds
        if steady_now() - self._held < seconds / 3:
            return
        for number in range(self._config.runners.slots):
            name = f"{SLOT}{self._owner}/{number}"
            try:
                lease = self._slots.get(name)
                self._slots[name] = (
                    running.renew_lease(self._db, lease) if lease else _taken(self._db, name, self._owner, seconds)
                )
            except FencedError:  # its lease was deleted while this runner slept
                self._slots[name] = _taken(self._db, name, self._owner, seconds)
        self._held = steady_now()

    def _close(self) -> None:
        """Ends all that the runner started. Jobs end at their next batch, for another runner to continue."""
        self._stop.set()
        _log.info("%d jobs end at their next batch", sum(thread.is_alive() for thread in self._threads))
        for thread in self._threads:
            thread.join()
        self._spare.close()
        with contextlib.suppress(DatabaseDownError):
            for lease in self._slots.values():
                running.give_back_lease(self._db, lease)
        self._scratch.close()
        if self._log is not None:
            self._log.close()


def _taken(db: Database, name: str, owner: str, seconds: float) -> Lease:
    lease = running.take_lease(db, name, owner, seconds)
    assert lease is not None, "the name of the lease holds the name of this runner, which no other has"
    return lease
