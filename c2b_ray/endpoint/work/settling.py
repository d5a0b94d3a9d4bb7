"""Records the end of a slice in the ledger, once, under the fence of its claim, however long the database is down.

It knows how a process reported its end, and not how it ran.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, keys, quotas
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.job import Claim, Failure, FencedError, Job
from c2b_ray.endpoint.work.accounting import Account, measured
from c2b_ray.endpoint.work.protocol import Ended, Problem

RETRY_S = 1.0
LONGEST_DELAY_S = 60.0
BUSY_S = 10.0
"""Seconds after which a question looks again whether another one to its run has ended."""

_log = logging.getLogger(__name__)


@dataclass
class Settling:
    """The end of one claim. `attempts`: the number of deaths without progress after which a job has failed. `stop`: set
    when the runner ends, which then no longer waits for a database that is down; the lease passes, and another runner
    takes the job."""

    db: Database
    claim: Claim
    attempts: int
    run_path: str
    stop: threading.Event

    def settle(self, account: Account, ended: Ended, reason: Failure | None = None) -> Job | None:
        """Records the end and returns the job; None if another runner has it by now. `reason`: why it was cancelled."""
        waited = False
        while True:
            try:
                if waited:
                    self._resync(account)
                return self._settled(account, ended, reason)
            except FencedError as error:
                _log.warning("%s; its slice ended as %s", error, ended.how)
                return None
            except DatabaseDownError as error:
                if not waited:
                    _log.warning("%s; %s waits with its end (%s)", error, self.claim.job.id, ended.how)
                waited = True
                if self.stop.wait(RETRY_S):
                    return None

    def _settled(self, account: Account, ended: Ended, reason: Failure | None) -> Job:
        job_id, fence = self.claim.job.id, self.claim.fence
        if not account.complete:
            jobs.progress(self.db, job_id, fence, account.progress())
            account.booked()
        if ended.how == "finished":
            return jobs.finish(self.db, job_id, fence, self.run_path, ended.classifier_hash, ended.each_classifier)
        if ended.how == "cancelled":
            return jobs.cancelled(self.db, job_id, fence, self.run_path, reason)
        if ended.how == "failed":
            return self._failed(ended.problem or Problem(title="The job failed"), account.advanced)
        return jobs.release(self.db, job_id, fence, run_path=self.run_path)

    def _failed(self, problem: Problem, advanced: bool) -> Job:
        job_id, fence = self.claim.job.id, self.claim.fence
        if problem.busy and self.claim.job.kind == "question":  # whoever asks longer does not make it fail
            return jobs.retry(self.db, job_id, fence, BUSY_S, "another question is asked of its run", counts=False)
        before = 0 if advanced else self.claim.job.attempt
        if problem.again and before + 1 < self.attempts:
            delay = min(LONGEST_DELAY_S, 2.0**before)
            return jobs.retry(self.db, job_id, fence, delay, problem.title)
        failure = Failure(problem.title, problem.detail, problem.field, problem.location)
        # Who submits it again goes on with its run, unless the run itself, or what it names, is the problem.
        return jobs.fail(self.db, job_id, fence, failure, self.run_path if problem.again else None)

    def _resync(self, account: Account) -> None:
        """Reads from the ledger what it has booked for this claim, which nobody else changes."""
        job = jobs.get(self.db, None, self.claim.job.id)
        if job is not None and job.fence == self.claim.fence:
            before = self.claim.job
            account.set_booked(job.images - before.images, job.model_seconds - before.model_seconds)


def book_asked_run(db: Database, job: Job, run_path: str) -> None:
    """Books the size of the run that a question asked: a search for failures keeps the draws of its questions."""
    with suppress(OSError, DatabaseDownError):
        jobs.resized(db, job.tenant_id, run_path.rstrip("/").rpartition("/")[2], measured(run_path).total)


def key_problem(db: Database, job: Job) -> Failure | None:
    """Returns why a job must stop because its key no longer works; None if it may go on. The job is cancelled, and its
    run is kept."""
    key = None if job.key_id is None else keys.why_not_working(db, job.key_id)
    if key is None:
        return None
    title = f"The key of this job {key}"
    detail = "It ended at its next batch, and its run is kept. Submit it again with a key that works."
    return Failure(title, detail)


def quota_problem(db: Database, tenant_id: str, models: Sequence[str], defaults: Quotas) -> Failure | None:
    """Returns why a running job of these models must stop because its tenant has exceeded a quota; None if it may go
    on. Like `key_problem`, it is cancelled, and its run is kept."""
    try:
        quotas.check_running(db, tenant_id, models, defaults)
    except quotas.Denied as denied:
        detail = f"{denied}. It ended at its next batch, and its run is kept. Submit it again when there is room."
        return Failure(f"The quota {denied.quota} is used up", detail)
    return None
