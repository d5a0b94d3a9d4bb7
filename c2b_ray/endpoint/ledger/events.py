"""Events of jobs. They are kept, so that a client that lost the connection resumes after the last one it saw.

Kinds: `state` (data: state, reason), `progress` (stage, done, total, rate, seconds_left), `step`, and others that a
runner reports. This module knows no stream.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import case, delete, func, select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, record


@dataclass(frozen=True)
class Event:
    """An event of a job. `id` grows from event to event, and is never used again."""

    id: int
    job_id: str
    kind: str
    data: dict[str, Any]
    at: float


_INSERT = tables.events.insert()
_INSERT_ONE = _INSERT.returning(tables.events.c.id)
_COLUMNS = [tables.events.c[field.name] for field in fields(Event)]


def add(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> int:
    """Adds an event in the caller's transaction and returns its id. The transaction must have changed or locked the
    job's row.

    PostgreSQL assigns ids before the commit. Without the lock, an event with a smaller id could be committed after a
    larger one was read, and the reader would miss it.
    """
    row = {"job_id": job_id, "kind": kind, "data": data, "at": tx.now}
    return int(tx.execute(_INSERT_ONE, row).scalar_one())


def add_at_end(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> None:
    """Like `add`, but writes the event at the end of the transaction, with others, and returns no id."""
    tx.at_end(_write, {"job_id": job_id, "kind": kind, "data": data, "at": tx.now})


def _write(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    tx.execute(_INSERT, rows)


def after(db: Database, job_id: str, last_id: int = 0, limit: int = 500) -> list[Event]:
    """Returns the events of a job after `last_id`, in order. The caller has checked that the job is its tenant's."""
    columns = tables.events.c
    where = columns.job_id == job_id, columns.id > last_id
    with db.reading() as tx:
        rows = tx.execute(select(*_COLUMNS).where(*where).order_by(columns.id).limit(limit))
        return [record(Event, row) for row in rows]


def seen(db: Database, job_id: str, event_id: int) -> tuple[bool, int]:
    """Returns whether `event_id` is an event of the job, and the id of the job's latest event; 0 if it has none."""
    columns = tables.events.c
    is_it = func.max(case((columns.id == event_id, 1), else_=0))
    with db.reading() as tx:
        row: Any = tx.execute(select(is_it, func.max(columns.id)).where(columns.job_id == job_id)).one()
    return bool(row[0]), int(row[1] or 0)


def forget(db: Database, ended_before: float) -> int:
    """Deletes the events of jobs that ended before this time; returns how many."""
    jobs = tables.jobs.c
    ended = select(jobs.id).where(jobs.ended < ended_before)
    with db.transaction() as tx:
        return tx.execute(delete(tables.events).where(tables.events.c.job_id.in_(ended))).rowcount
