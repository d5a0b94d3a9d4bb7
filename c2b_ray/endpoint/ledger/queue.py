"""Jobs as the dispatcher sees them: which wait, which run, and which may run next.

Its decisions count only while it leads: each change names the lease that it holds. It knows no fairness.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, update

from c2b_ray.endpoint.ledger import events, leases, tables
from c2b_ray.endpoint.ledger.database import Database, record
from c2b_ray.endpoint.ledger.job import COLUMNS, Failure, Job
from c2b_ray.endpoint.ledger.running import ATTEMPTS, due, ended, lapsed

_jobs = tables.jobs.c
LOST = Failure(
    "The job ended its runner",
    "Every runner that took this job died, most likely because memory ran out. Make the job smaller, or ask the "
    "operator what the runners' logs say.",
)


def waiting(db: Database, per_tenant: int = 20) -> list[Job]:
    """Returns the jobs that wait for their turn and may start by now: the oldest `per_tenant` of each tenant, oldest
    first."""
    with db.reading() as tx:
        turn = func.row_number().over(partition_by=_jobs.tenant_id, order_by=(_jobs.created, _jobs.id)).label("turn")
        queued = (
            select(_jobs.id, turn).where(tables.OPEN, _jobs.state == "queued", _NOT_GRANTED, due(db.clock())).subquery()
        )
        first = select(queued.c.id).where(queued.c.turn <= per_tenant)
        return [
            record(Job, row) for row in tx.execute(select(*COLUMNS).where(_jobs.id.in_(first)).order_by(_jobs.created))
        ]


def granted(db: Database) -> list[Job]:
    """Returns the jobs that were granted a turn and that no runner has claimed yet."""
    return _every(db, _jobs.state == "queued", _jobs.granted.is_not(None))


def running(db: Database) -> list[Job]:
    """Returns the jobs in the state running, also those whose runner is gone."""
    return _every(db, _jobs.state == "running")


def grant(db: Database, job_id: str, leader: leases.Lease) -> bool:
    """Grants a waiting job its turn. Returns False if it no longer waits, or `leader` no longer leads."""
    return _ordered(db, leader, {"granted": db.clock()}, _jobs.id == job_id, _jobs.state == "queued", _NOT_GRANTED)


def ask_to_yield(db: Database, job_id: str, leader: leases.Lease) -> bool:
    """Asks a running job to end its slice. Returns False if it does not run, or `leader` no longer leads."""
    return _ordered(db, leader, {"yield_requested": True}, _jobs.id == job_id, _jobs.state == "running")


def sweep(db: Database, attempts: int = ATTEMPTS) -> list[Job]:
    """Ends the jobs whose runner is gone and that nobody should take over, and returns them.

    These are jobs whose cancellation was requested, and jobs that `attempts` runners died of.
    """
    with db.transaction() as tx:
        orphaned = and_(_jobs.state == "running", lapsed(tx))
        values: dict[str, Any] = {"ended": tx.now, "owner": None, "lease_until": None, "fence": _jobs.fence + 1}
        cancel = values | {"state": "cancelled"}
        fail = values | {"state": "failed", "failure": asdict(LOST), "attempt": _jobs.attempt + 1}
        rows = [
            row
            for where, change in ((_jobs.cancel_requested, cancel), (_jobs.attempt + 1 >= attempts, fail))
            for row in tx.execute(
                update(tables.jobs).where(tables.OPEN, orphaned, where).values(change).returning(*COLUMNS)
            )
        ]
        return [ended(tx, row) for row in rows]


_NOT_GRANTED = _jobs.granted.is_(None)


def _every(db: Database, *where: ColumnElement[bool]) -> list[Job]:
    with db.reading() as tx:
        return [
            record(Job, row) for row in tx.execute(select(*COLUMNS).where(tables.OPEN, *where).order_by(_jobs.created))
        ]


def _ordered(db: Database, leader: leases.Lease, values: dict[str, Any], *where: ColumnElement[bool]) -> bool:
    with db.transaction() as tx:
        if not leases.holds(tx, leader):
            return False
        row = tx.execute(update(tables.jobs).where(*where).values(values).returning(_jobs.id, _jobs.state)).first()
        if row is not None:
            reason = "its turn came" if "granted" in values else "it was asked to yield"
            events.add(tx, row.id, "state", {"state": row.state, "reason": reason})
        return row is not None
