"""A runner: claims granted jobs, runs each in its own process, and continues jobs whose runner was lost.

It holds the ledger's credentials; the processes of jobs do not. It holds a lease for each of its slots, from which the
dispatcher learns how many jobs can run. It does not choose jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import IO

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.booking import UNKNOWN
from c2b_ray.endpoint.clocks import now
from c2b_ray.endpoint.ledger import jobs, locks
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.job import Claim, FencedError, Job
from c2b_ray.endpoint.ledger.locks import SLOT, Lease
from c2b_ray.endpoint.policy import fetched
from c2b_ray.endpoint.scratch import ScratchFolder
from c2b_ray.endpoint.work.child import SPARE
from c2b_ray.endpoint.work.fairness import SliceUse
from c2b_ray.endpoint.work.job import JobRun
from c2b_ray.endpoint.work.process import JobProcess, ProcessStarter, SpareProcess, inherit
from c2b_ray.endpoint.work.progress import ClaimEnd, key_problem
from c2b_ray.endpoint.work.protocol import Problem, WorkEnded
from c2b_ray.errors import ServiceError

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
        if self._config.runners.spare and now() - self._spare_taken >= SPARE_AFTER_S:
            self._spare.prepare()
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        while len(self._threads) < self._config.runners.slots:
            claimed_at = now()
            runners = self._config.runners
            claim = jobs.claim(self._db, self._owner, runners.lease_seconds, runners.attempts)
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
                end.settle(account, WorkEnded(how="cancelled"), problem)
                return
            claim = inherit(self._db, claim, end.run_path)
            end = replace(end, claim=claim)
            process, note = self._started(job)
            if note:
                jobs.report(self._db, job.id, claim.fence, "warning", {"text": note})
            start = self._starting.start(job, claimed_at + runners.lease_seconds)
            run = JobRun(self._db, claim, process, start, self._config, by_clock=start.via == "serve")
            run.run(end, self._stop)
        except (DatabaseDownError, FencedError) as error:
            _log.warning("%s; %s waits for another claim", error, job.id)
        except ServiceError as error:
            end.settle(account, WorkEnded(how="failed", problem=Problem(title="It is not run", detail=str(error))))
        except Exception:
            _log.exception("%s: its slice ended by an error of the runner", job.id)
            if process is not None:
                process.kill()
            end.settle(account, WorkEnded(how="failed", problem=BROKEN))
        finally:
            if process is not None:
                process.kill()
                fetched.sweep()  # a killed process leaves its copies

    def _started(self, job: Job) -> tuple[JobProcess, str]:
        """Starts the job's process. A job that loads uploaded weights gets a new one without network; other jobs may
        take the spare process, which has network access."""
        if self._starting.loads_uploaded_weights(job):
            return self._starting.process(network=False)
        spare = self._spare.take()
        self._spare_taken = now()
        return (spare, "") if spare is not None else self._starting.process()

    def _hold_slots(self) -> None:
        """Holds one lease per slot, by which the dispatcher counts slots."""
        seconds = self._config.runners.lease_seconds
        if now() - self._held < seconds / 3:
            return
        for number in range(self._config.runners.slots):
            name = f"{SLOT}{self._owner}/{number}"
            try:
                lease = self._slots.get(name)
                self._slots[name] = (
                    locks.renew(self._db, lease) if lease else _taken(self._db, name, self._owner, seconds)
                )
            except FencedError:  # its lease was deleted while this runner slept
                self._slots[name] = _taken(self._db, name, self._owner, seconds)
        self._held = now()

    def _close(self) -> None:
        """Ends all that the runner started. Jobs end at their next batch, for another runner to continue."""
        self._stop.set()
        _log.info("%d jobs end at their next batch", sum(thread.is_alive() for thread in self._threads))
        for thread in self._threads:
            thread.join()
        self._spare.close()
        with contextlib.suppress(DatabaseDownError):
            for lease in self._slots.values():
                locks.give_back(self._db, lease)
        self._scratch.close()
        if self._log is not None:
            self._log.close()


def _taken(db: Database, name: str, owner: str, seconds: float) -> Lease:
    lease = locks.take(db, name, owner, seconds)
    assert lease is not None, "the name of the lease holds the name of this runner, which no other has"
    return lease
