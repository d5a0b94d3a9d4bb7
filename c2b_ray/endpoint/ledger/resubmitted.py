"""Lets a job that is submitted again after it was cancelled, or failed by a temporary problem, continue its earlier
run.

Tenant, kind and resolved config must be equal. A run belongs to one job: one transaction passes it on, and notes the
path where it lies until it is moved. This module moves no files.
"""

from __future__ import annotations

from sqlalchemy import select, update

from c2b_ray.endpoint.ledger import events, tables
from c2b_ray.endpoint.ledger.database import Database, record
from c2b_ray.endpoint.ledger.job import COLUMNS, FencedError, Job

_jobs = tables.jobs.c
_LATEST = 50
_STATES = ("cancelled", "failed")
"""The states whose jobs may leave a run; a job that failed for good names none."""
NOTE = "run"
"""The kind of the events that record a take-over."""


def predecessor(db: Database, job: Job) -> tuple[str, str] | None:
    """Returns the latest cancelled or failed job with this config and a run, as (job id, path of the run); None if
    there is none."""
    where = (
        _jobs.tenant_id == job.tenant_id, _jobs.kind == job.kind, _jobs.state.in_(_STATES), _jobs.id != job.id,
        _jobs.deleted.is_(None), _jobs.run_path.is_not(None),
    )  # fmt: skip
    statement = select(_jobs.id, _jobs.run_path, _jobs.resolved).where(*where).order_by(_jobs.ended.desc())
    with db.reading() as tx:
        rows = tx.execute(statement.limit(_LATEST)).all()
    return next(((row.id, row.run_path) for row in rows if row.resolved == job.resolved), None)


def take_over(db: Database, job: Job, before: tuple[str, str]) -> Job | None:
    """Passes the run of `before` on to a running job, and returns the job as it is now.

    The new job counts the run's images too, and the earlier one keeps its count; they were booked to the earlier job's
    key and are not booked again. Returns None if the run was deleted or taken meanwhile; raises FencedError if the job
    is no longer held.
    """
    old, path = before
    with db.transaction() as tx:
        has_it = _jobs.id == old, _jobs.run_path == path, _jobs.state.in_(_STATES), _jobs.deleted.is_(None)
        gives = update(tables.jobs).where(*has_it).values(run_path=None, bytes=0)
        earlier = tx.execute(gives.returning(_jobs.images)).first()
        if earlier is None:
            return None
        mine = _jobs.id == job.id, _jobs.fence == job.fence, _jobs.state == "running"
        takes = update(tables.jobs).where(*mine).values(run_path=path, images=_jobs.images + earlier.images)
        row = tx.execute(takes.returning(*COLUMNS)).first()
        if row is None:
            raise FencedError(f"{job.id}: another runner has it, or it has ended")
        events.add(tx, old, NOTE, {"message": "its run was taken over", "reason": f"{job.id} continues it"})
        events.add(tx, job.id, NOTE, {"message": "continues an earlier run", "reason": f"that of {old}"})
    return record(Job, row)
