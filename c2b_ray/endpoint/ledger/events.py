"""Events of jobs, kept so that a client that lost the connection resumes after the last one it saw. It knows no stream.

Kinds: `state` (data: state, reason), `progress` (stage, done, total, rate, seconds_left), `step` and what else a runner
reports.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import case, delete, func, select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, locked, record
from c2b_ray.endpoint.ledger.ids import is_id


@dataclass(frozen=True)
class Event:
    """`id` grows from event to event of a job, and is never used again."""

    id: int
    job_id: str
    kind: str
    data: dict[str, Any]
    at: float


_INSERT = tables.events.insert()
_INSERT_ONE = _INSERT.returning(tables.events.c.id)
_COLUMNS = [tables.events.c[field.name] for field in fields(Event)]


def add(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> int:
    """Part of the caller's transaction, which has changed or locked the job's row: PostgreSQL counts ids up before a
    transaction is committed, so that a reader would miss an event whose smaller id was committed later."""
    row = {"job_id": job_id, "kind": kind, "data": data, "at": tx.now}
    return int(tx.execute(_INSERT_ONE, row).scalar_one())


def add_at_end(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> None:
    """As `add`, where nobody needs the event's id: it is written at the transaction's end, with those of others."""
    tx.at_end(_write, {"job_id": job_id, "kind": kind, "data": data, "at": tx.now})


def _write(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    tx.execute(_INSERT, rows)


def append(db: Database, job_id: str, kind: str, data: dict[str, Any]) -> int:
    """The event's id. For what no runner reports; a runner's events go with its fence (`jobs.report`)."""
    with db.transaction() as tx:
        tx.execute(locked(tx, select(tables.jobs.c.id).where(tables.jobs.c.id == job_id)))
        return add(tx, job_id, kind, data)


def after(db: Database, job_id: str, last_id: int = 0, limit: int = 500) -> list[Event]:
    """The events of a job that follow `last_id`, in order. The caller has seen that the job is its tenant's."""
    columns = tables.events.c
    where = columns.job_id == job_id, columns.id > last_id
    with db.reading() as tx:
        rows = tx.execute(select(*_COLUMNS).where(*where).order_by(columns.id).limit(limit))
        return [record(Event, row) for row in rows]


def after_of(db: Database, tenant_id: str, job_id: str, last_id: int = 0, limit: int = 500) -> list[Event] | None:
    """As `after`, None where the tenant has no such job."""
    if not is_id(job_id):
        return None
    jobs = tables.jobs.c
    with db.reading() as tx:
        if tx.scalar(select(jobs.id).where(jobs.id == job_id, jobs.tenant_id == tenant_id)) is None:
            return None
    return after(db, job_id, last_id, limit)


def seen(db: Database, job_id: str, event_id: int) -> tuple[bool, int]:
    """Whether `event_id` is that of an event of the job, and the id of the job's latest, 0 before the first."""
    columns = tables.events.c
    is_it = func.max(case((columns.id == event_id, 1), else_=0))
    with db.reading() as tx:
        row: Any = tx.execute(select(is_it, func.max(columns.id)).where(columns.job_id == job_id)).one()
    return bool(row[0]), int(row[1] or 0)


def forget(db: Database, ended_before: float) -> int:
    """Deletes the events of jobs that ended before then; how many."""
    jobs = tables.jobs.c
    ended = select(jobs.id).where(jobs.ended < ended_before)
    with db.transaction() as tx:
        return tx.execute(delete(tables.events).where(tables.events.c.job_id.in_(ended))).rowcount
