"""Jobs as runners and the dispatcher see them: granted, claimed, renewed, reported on, ended; and leases by name.

A claim raises the job's fence. Every change that a runner makes names its fence in the WHERE clause, so a runner whose
job was taken over changes nothing, and gets a `FencedError`. A lease by name has one holder at a time, such as the
dispatcher that leads; its fence grows each time another holder takes it. Leases have lapsed when their end has passed,
or when it lies further ahead than a lease can end, which means that the clock was set back. After a clock was set,
nobody takes a lease from its holder before that had the time to renew it. Runners are trusted: these functions do not
check tenants.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint import counters
from c2b_ray.endpoint.ledger import quotas, tables, webhooks
from c2b_ray.endpoint.ledger.database import Database, Transaction, locked, record
from c2b_ray.endpoint.ledger.tables import COLUMNS, Claim, Failure, FencedError, Job, LeaseReply, Progress
from c2b_ray.endpoint.ledger.webhooks import announce

# Leases by name, which know no job.


DISPATCHER = "dispatcher"
"""The lease of the dispatcher that leads."""
SLOT = "slot/"
"""Prefix of the names of leases that announce the slots of runners."""
_leases = tables.leases.c


@dataclass(frozen=True)
class Lease:
    """A lease. `until`: when it lapses unless it is renewed, by the database's clock."""

    name: str
    owner: str
    until: float
    seconds: float
    fence: int


_LEASE_COLUMNS = [_leases[name] for name in ("name", "owner", "until", "seconds", "fence")]


def take_lease(db: Database, name: str, owner: str, seconds: float) -> Lease | None:
    """Takes the lease and returns it; None while another holds it. The current holder renews it, with the same
    fence."""
    with db.transaction() as tx:
        now = tx.now
        values = {"name": name, "owner": owner, "until": now + seconds, "seconds": seconds, "fence": 1}
        insert = postgresql.insert(tables.leases) if tx.locks_rows else sqlite.insert(tables.leases)
        has_ended = or_(_leases.until <= now, _leases.until > now + AHEAD * _leases.seconds)
        free = or_(_leases.owner == owner, _leases.owner == "", and_(has_ended, _leases.seconds <= tx.steady_s))
        changed = {"owner": owner, "until": now + seconds, "seconds": seconds}
        fence = _leases.fence + case((_leases.owner == owner, 0), else_=1)
        statement = insert.values(values).on_conflict_do_update(
            index_elements=["name"], set_=changed | {"fence": fence}, where=free
        )
        row = tx.execute(statement.returning(*_LEASE_COLUMNS)).first()
    return None if row is None else record(Lease, row)


def renew_lease(db: Database, lease: Lease) -> Lease:
    """Renews the lease. Raises FencedError if another holder has taken it."""
    with db.transaction() as tx:
        changes = update(tables.leases).where(*_same(lease)).values(until=tx.now + lease.seconds)
        row = tx.execute(changes.returning(*_LEASE_COLUMNS)).first()
    if row is None:
        raise FencedError(f"the lease {lease.name!r} has another holder now")
    return record(Lease, row)


def give_back_lease(db: Database, lease: Lease) -> None:
    """Ends the lease, so that another can take it at once. It has no effect if another has it. Its fence is not used
    again."""
    with db.transaction() as tx:
        tx.execute(update(tables.leases).where(*_same(lease)).values(owner="", until=0.0))


def lease_holder(db: Database, name: str) -> Lease | None:
    """Returns the current lease of this name; None if nobody holds it."""
    return next((lease for lease in live_leases(db, name) if lease.name == name), None)


def live_leases(db: Database, prefix: str) -> list[Lease]:
    """Returns the leases that are held and whose names begin with the prefix."""
    with db.reading() as tx:
        now = db.now(tx.connection)
        is_plausible = _leases.until <= now + AHEAD * _leases.seconds
        has_prefix = _leases.name.startswith(prefix, autoescape=True)
        return [
            record(Lease, row)
            for row in tx.execute(select(*_LEASE_COLUMNS).where(has_prefix, _leases.until > now, is_plausible))
        ]


def forget_leases(db: Database, prefix: str, seconds: float) -> None:
    """Deletes the leases that lapsed at least `seconds` ago and whose names begin with the prefix. For names that are
    not used again."""
    with db.transaction() as tx:
        has_prefix = _leases.name.startswith(prefix, autoescape=True)
        tx.execute(delete(tables.leases).where(has_prefix, _leases.until < tx.now - seconds))


def holds_lease(tx: Transaction, lease: Lease) -> bool:
    """Returns whether the lease is still held, and keeps it so until the transaction ends."""
    conditions = *_same(lease), _leases.until > tx.now
    return tx.execute(locked(tx, select(_leases.name).where(*conditions))).first() is not None


def _same(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return _leases.name == lease.name, _leases.owner == lease.owner, _leases.fence == lease.fence


# What runners do with jobs.


_jobs = tables.jobs.c
ATTEMPTS = 5
"""The number of runners that may die of one job; see `sweep`."""
AHEAD = 1.5
"""A lease that ends more than this multiple of its length ahead was written before the clock was set back."""


def lapsed(tx: Transaction) -> ColumnElement[bool]:
    """Returns the condition that a job's lease has passed, or ends further ahead than a lease can.

    After the database's clock was set, no lease has lapsed until its holder has had the time of one to renew it: leases
    of runners that live seem to have passed, too.
    """
    now = tx.now
    too_far = _jobs.lease_until > now + AHEAD * _jobs.lease_seconds
    has_had_its_time = func.coalesce(_jobs.lease_seconds, 0.0) <= tx.steady_s
    return or_(_jobs.lease_until.is_(None), and_(or_(_jobs.lease_until <= now, too_far), has_had_its_time))


def due(now: float | ColumnElement[float]) -> ColumnElement[bool]:
    """Returns the condition that a waiting job may start, or that its wait ends further ahead than it is long."""
    too_far = _jobs.not_before > now + AHEAD * _jobs.lease_seconds
    return or_(_jobs.not_before.is_(None), _jobs.not_before <= now, too_far)


def claim(db: Database, owner: str, seconds: float, attempts: int = ATTEMPTS) -> Claim | None:
    """Claims the next job under a lease of `seconds`; returns None if there is none.

    That is a job that was granted, or one whose runner is gone. Concurrent claims get different jobs. A job that
    `attempts` runners have died of is not claimed.
    """
    with db.transaction() as tx:
        now = tx.now
        granted = and_(_jobs.state == "queued", _jobs.granted.is_not(None), due(now))
        orphaned = and_(_jobs.state == "running", lapsed(tx), _jobs.attempt + 1 < attempts)
        free = and_(tables.OPEN, or_(granted, orphaned))
        first = select(_jobs.id).where(free).order_by(_jobs.granted, _jobs.created).limit(1)
        if tx.locks_rows:
            first = first.with_for_update(skip_locked=True)
        was_running = case((_jobs.state == "running", 1), else_=0)
        values: dict[str, Any] = {"state": "running", "owner": owner, "fence": _jobs.fence + 1}
        values |= {"lease_until": now + seconds, "lease_seconds": seconds, "yield_requested": False}
        values |= {"attempt": _jobs.attempt + was_running, "started": func.coalesce(_jobs.started, now)}
        statement = update(tables.jobs).where(_jobs.id == first.scalar_subquery(), free).values(values)
        row = tx.execute(statement.returning(*COLUMNS)).first()
        if row is None:
            return None
        reason = {"reason": f"attempt {row.attempt + 1}"} if row.attempt else {}
        webhooks.add_event(tx, row.id, "state", {"state": "running", **reason})
    return Claim(record(Job, row), row.fence)


def renew(db: Database, job_id: str, fence: int, seconds: float) -> LeaseReply:
    """Extends the lease to `seconds` from now, and returns the orders for the job. Raises FencedError if it is no
    longer held."""
    with db.transaction() as tx:
        values = {"lease_until": tx.now + seconds, "lease_seconds": seconds}
        row = _changed(tx, job_id, fence, values)
    return LeaseReply(row.cancel_requested, row.yield_requested)


def check_fence(db: Database, job_id: str, fence: int) -> LeaseReply:
    """Like `renew`, but does not extend the lease: the check before a commit to the store. Raises FencedError also if
    the lease has passed."""
    with db.reading() as tx:
        conditions = _jobs.id == job_id, _jobs.fence == fence, _jobs.state == "running", _jobs.lease_until > db.clock()
        row = tx.execute(select(_jobs.cancel_requested, _jobs.yield_requested).where(*conditions)).first()
    if row is None:
        raise _fenced(job_id, fence)
    return LeaseReply(row.cancel_requested, row.yield_requested)


def progress(db: Database, job_id: str, fence: int, report_: Progress) -> LeaseReply:
    """Writes the run's progress, adds its use to the job and to its key's usage, and adds an event for watchers."""
    values: dict[str, Any] = {
        name: getattr(report_, name)
        for name in ("stage", "done", "total", "rate", "seconds_left", "bytes")
        if getattr(report_, name) is not None
        or (report_.stage is not None and name != "bytes")  # a new stage resets its counts
    }
    values["images"] = _jobs.images + sum(report_.images.values())
    values["model_seconds"] = _jobs.model_seconds + sum(report_.model_seconds.values())
    if report_.advanced:
        values["attempt"] = 0
    with db.transaction() as tx:
        row = _changed(tx, job_id, fence, values)
        quotas.add_of_job(tx, record(Job, row), report_)
        images, seconds = report_.images.values(), report_.model_seconds
        tx.after_commit(lambda: counters.used(report_.images_stage or report_.stage, images, seconds))
        details = {name: row._mapping[name] for name in ("stage", "done", "total", "rate", "seconds_left")}
        webhooks.add_event(tx, job_id, "progress", details)
    return LeaseReply(row.cancel_requested, row.yield_requested)


def resized(db: Database, tenant_id: str, job_id: str, bytes_: int) -> None:
    """Writes the size of an ended job's run, which has grown since. It has no effect if the tenant has no such job."""
    conditions = _jobs.id == job_id, _jobs.tenant_id == tenant_id, _jobs.state == "finished", _jobs.deleted.is_(None)
    with db.transaction() as tx:
        tx.execute(update(tables.jobs).where(*conditions).values(bytes=bytes_))


def report(db: Database, job_id: str, fence: int, kind: str, data: dict[str, Any]) -> int:
    """Adds an event of the run, such as the end of a step; returns its id."""
    with db.transaction() as tx:
        _changed(tx, job_id, fence, {"fence": fence})  # locks the row, too
        return webhooks.add_event(tx, job_id, kind, data)


def release(db: Database, job_id: str, fence: int, not_before: float | None = None, run_path: str | None = None) -> Job:
    """Ends the slice: the job waits for its next turn, not before `not_before`. It is cancelled if that was requested
    meanwhile.

    `run_path`: the path of its run so far, which is kept if the job is cancelled while it waits.
    """
    with db.transaction() as tx:
        values = {"attempt": 0, "slices": _jobs.slices + 1, "not_before": not_before}
        values |= {"run_path": run_path} if run_path else {}
        return _queued_again(tx, job_id, fence, values, "its slice ended")


def retry(db: Database, job_id: str, fence: int, delay: float, reason: str, counts: bool = True) -> Job:
    """Ends the slice after a failure that may pass: the job waits `delay` seconds, then for its next turn. It `counts`
    like the death of a runner."""
    with db.transaction() as tx:
        values = {"attempt": _jobs.attempt + int(counts), "not_before": tx.now + delay}
        return _queued_again(tx, job_id, fence, values, f"it is tried again: {reason}")


def finish(
    db: Database,
    job_id: str,
    fence: int,
    run_path: str | None = None,
    classifier_hash: str | None = None,
    each: Collection[str] = (),
) -> Job:
    """Ends the job as finished, also if its cancellation was requested too late.

    `each`: the hash of each classifier, of a job that has several; `classifier_hash` is then that of all of them.
    """
    values = {"state": "finished", "run_path": run_path, "classifier_hash": classifier_hash, "seconds_left": 0.0}
    with db.transaction() as tx:
        job = _end(tx, job_id, fence, values)
        for digest in sorted(set(each)):
            tx.execute(insert(tables.job_classifiers).values(job_id=job_id, hash=digest))
        return job


def fail(db: Database, job_id: str, fence: int, failure: Failure, run_path: str | None = None) -> Job:
    values = {"state": "failed", "failure": asdict(failure), "run_path": run_path, "seconds_left": None}
    with db.transaction() as tx:
        return _end(tx, job_id, fence, values)


def cancelled(db: Database, job_id: str, fence: int, run_path: str | None = None, reason: Failure | None = None) -> Job:
    """Ends the job as cancelled: its cancellation was requested, or there is another `reason`."""
    failure = None if reason is None else asdict(reason)
    values = {"state": "cancelled", "run_path": run_path, "seconds_left": None, "failure": failure}
    with db.transaction() as tx:
        return _end(tx, job_id, fence, values)


def ended(tx: Transaction, row: Row[Any]) -> Job:
    """Adds the event and the webhook deliveries of a job's end, in the transaction that ended it."""
    data = {"state": row.state} | ({"failure": row.failure} if row.failure else {})
    announce(tx, row.tenant_id, row.id, webhooks.add_event(tx, row.id, "state", data))
    title = (row.failure or {}).get("title")
    tx.after_commit(lambda: counters.ended(row.state, title))
    return record(Job, row)


def _queued_again(tx: Transaction, job_id: str, fence: int, values: dict[str, Any], reason: str) -> Job:
    """Queues the job again, or ends it if its cancellation was requested meanwhile."""
    waits: dict[str, Any] = {"state": "queued", "owner": None, "lease_until": None, "granted": None}
    seconds = max(0.0, (values["not_before"] or tx.now) - tx.now)
    waits |= {"lease_seconds": seconds, "yield_requested": False}  # how long it waits, for `due`
    row = _changed(tx, job_id, fence, waits | values)
    if row.cancel_requested:
        return _end(tx, job_id, fence, {"state": "cancelled"}, state="queued")
    webhooks.add_event(tx, job_id, "state", {"state": "queued", "reason": reason})
    return record(Job, row)


def _end(tx: Transaction, job_id: str, fence: int, values: dict[str, Any], state: str = "running") -> Job:
    values = {"ended": tx.now, "owner": None, "lease_until": None, "granted": None} | values
    return ended(tx, _changed(tx, job_id, fence, values, state))


def _changed(tx: Transaction, job_id: str, fence: int, values: dict[str, Any], state: str = "running") -> Row[Any]:
    conditions = _jobs.id == job_id, _jobs.fence == fence, _jobs.state == state
    row = tx.execute(update(tables.jobs).where(*conditions).values(values).returning(*COLUMNS)).first()
    if row is None:
        raise _fenced(job_id, fence)
    return row


def _fenced(job_id: str, fence: int) -> FencedError:
    return FencedError(f"{job_id}: another runner has it, or it has ended; claim {fence} no longer counts")


# Jobs as the dispatcher sees them: which wait, which run, and which may run next.


LOST = Failure(
    "The job ended its runner",
    "Every runner that took this job died, most likely because memory ran out. Make the job smaller, or ask the "
    "operator what the runners' logs say.",
)


def waiting(db: Database, per_tenant: int = 20) -> list[Job]:
    """Returns the jobs that wait for their turn and may start by now: the oldest `per_tenant` of each tenant, oldest
    first."""
    with db.reading() as tx:
        rank = func.row_number().over(partition_by=_jobs.tenant_id, order_by=(_jobs.created, _jobs.id)).label("turn")
        queued = (
            select(_jobs.id, rank).where(tables.OPEN, _jobs.state == "queued", _NOT_GRANTED, due(db.clock())).subquery()
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


def grant(db: Database, job_id: str, leader: Lease) -> bool:
    """Grants a waiting job its turn. Returns False if it no longer waits, or `leader` no longer leads."""
    return _ordered(db, leader, {"granted": db.clock()}, _jobs.id == job_id, _jobs.state == "queued", _NOT_GRANTED)


def ask_to_yield(db: Database, job_id: str, leader: Lease) -> bool:
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
            for condition, change in ((_jobs.cancel_requested, cancel), (_jobs.attempt + 1 >= attempts, fail))
            for row in tx.execute(
                update(tables.jobs).where(tables.OPEN, orphaned, condition).values(change).returning(*COLUMNS)
            )
        ]
        return [ended(tx, row) for row in rows]


_NOT_GRANTED = _jobs.granted.is_(None)


def _every(db: Database, *conditions: ColumnElement[bool]) -> list[Job]:
    with db.reading() as tx:
        return [
            record(Job, row)
            for row in tx.execute(select(*COLUMNS).where(tables.OPEN, *conditions).order_by(_jobs.created))
        ]


def _ordered(db: Database, leader: Lease, values: dict[str, Any], *conditions: ColumnElement[bool]) -> bool:
    with db.transaction() as tx:
        if not holds_lease(tx, leader):
            return False
        row = tx.execute(update(tables.jobs).where(*conditions).values(values).returning(_jobs.id, _jobs.state)).first()
        if row is not None:
            reason = "its turn came" if "granted" in values else "it was asked to yield"
            webhooks.add_event(tx, row.id, "state", {"state": row.state, "reason": reason})
        return row is not None
