"""Jobs as their owners see them: submitted, read, listed, cancelled, deleted. `running` is the runners' side.

queued → running → (queued again after a slice) → finished | failed | cancelled
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import aged, audit_log, events, quotas, tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, locked, record
from c2b_ray.endpoint.ledger.ids import is_id, new_id
from c2b_ray.endpoint.ledger.job import (
    COLUMNS,
    ENDED,
    Claim,
    Failure,
    FencedError,
    Filters,
    IdempotencyConflictError,
    Job,
    NewJob,
    Orders,
    Page,
    Progress,
)
from c2b_ray.endpoint.ledger.queue import ask_to_yield, grant, running, sweep, waiting
from c2b_ray.endpoint.ledger.running import (
    cancelled,
    check_fence,
    claim,
    ended,
    fail,
    finish,
    lapsed,
    progress,
    release,
    renew,
    report,
    resized,
    retry,
)
from c2b_ray.endpoint.ledger.together import together
from c2b_ray.errors import ConfigError, RunError

__all__ = [
    "Claim", "Failure", "FencedError", "Filters", "IdempotencyConflictError", "Job", "NewJob", "Orders", "Page",
    "Progress", "ask_to_yield", "cancelled", "check_fence", "claim", "fail", "finish", "forget_idempotency", "get",
    "grant", "page", "progress", "release", "renew", "report", "request_cancel", "resized", "retry", "running",
    "set_deleted", "submit", "submitted_before", "sweep", "waiting",
]  # fmt: skip

_jobs = tables.jobs.c
_BY_ID = select(*COLUMNS).where(_jobs.id == bindparam("job_id"))
_INSERT = insert(tables.jobs)
_used = tables.idempotency.c
_USED = select(_used.body_hash, _used.job_id).where(
    _used.tenant_id == bindparam("tenant_id"), _used.key == bindparam("key")
)
_ZERO = dict.fromkeys(("images", "model_seconds", "bytes", "attempt", "slices", "fence"), 0)
_DEFAULTS: dict[str, Any] = (
    dict.fromkeys(field.name for field in fields(Job) if field.name != "not_before")
    | _ZERO
    | {"yield_requested": False, "cancel_requested": False}
)
"""The values of a new row."""


def submit(db: Database, tenant_id: str, key_id: str | None, new: NewJob, defaults: Quotas) -> tuple[Job, bool]:
    """Submits a job; returns it and whether this call created it.

    With an Idempotency-Key that was used before, it returns the job of the earlier request. The job is committed before
    any runner can claim it. `defaults`: the quotas of tenants without quotas of their own.

    Raises quotas.Denied if a quota is used up, IdempotencyConflictError if the key was used with another body, and
    ConfigError for an invalid field.
    """
    _check(new)
    work = partial(_submitted, who=(tenant_id, key_id), new=new, defaults=defaults)
    return together(db, tenant_id, work, savepoint=new.idempotency_key is not None)


def submitted_before(db: Database, tenant_id: str, key: str, body_hash: str) -> Job | None:
    """Returns the job that an Idempotency-Key created; None if it was never used.

    Raises IdempotencyConflictError if it was used with another body.
    """
    with db.reading() as tx:
        row = tx.execute(_USED, {"tenant_id": tenant_id, "key": key}).first()
        return None if row is None else _earlier_job(tx, row, body_hash)


def get(db: Database, tenant_id: str | None, job_id: str) -> Job | None:
    """Returns a job; None if the tenant has no such job. `tenant_id` None: any tenant, for operators."""
    if not is_id(job_id):
        return None
    with db.reading() as tx:
        row = tx.execute(_BY_ID, {"job_id": job_id}).first()
    if row is None or row.deleted is not None or tenant_id not in (None, row.tenant_id):
        return None
    return record(Job, row)


def page(
    db: Database,
    tenant_id: str | None,
    filters: Filters | None = None,
    cursor: tuple[float, str] | None = None,
    limit: int = 50,
) -> Page:
    """Returns a page of jobs, latest first. `cursor`: a page's `next`. `tenant_id` None: all tenants, for operators."""
    statement = select(*COLUMNS).where(_jobs.deleted.is_(None), *_conditions(filters or Filters()))
    if tenant_id is not None:
        statement = statement.where(_jobs.tenant_id == tenant_id)
    if cursor is not None:
        created, job_id = cursor
        statement = statement.where(or_(_jobs.created < created, and_(_jobs.created == created, _jobs.id < job_id)))
    with db.reading() as tx:
        rows = tx.execute(statement.order_by(_jobs.created.desc(), _jobs.id.desc()).limit(limit + 1)).all()
    items = [record(Job, row) for row in rows[:limit]]
    return Page(items, (items[-1].created, items[-1].id) if len(rows) > limit else None)


def request_cancel(db: Database, tenant_id: str, job_id: str, actor: str = "operator") -> Job | None:
    """Requests that a job be cancelled, and returns it as it is then; None if the tenant has no such job.

    A queued job, or one whose runner is gone, is cancelled at once; a running job ends at its next batch; an ended job
    stays as it is.
    """
    if not is_id(job_id):
        return None
    here = _jobs.id == job_id, _jobs.tenant_id == tenant_id, _jobs.deleted.is_(None)
    with db.transaction() as tx:
        at_once = or_(_jobs.state == "queued", and_(_jobs.state == "running", lapsed(tx)))
        ends: dict[str, Any] = {"state": "cancelled", "ended": tx.now, "owner": None, "lease_until": None}
        ends |= {"cancel_requested": True, "granted": None, "fence": _jobs.fence + 1}
        row = tx.execute(update(tables.jobs).where(*here, at_once).values(ends).returning(*COLUMNS)).first()
        if row is None:
            asks = update(tables.jobs).where(*here, _jobs.state == "running", _jobs.cancel_requested.is_(False))
            row = tx.execute(asks.values(cancel_requested=True).returning(*COLUMNS)).first()
        if row is None:
            kept = tx.execute(select(*COLUMNS).where(*here)).first()
            return None if kept is None else record(Job, kept)
        if row.state == "cancelled":
            ended(tx, row)
        else:
            events.add(tx, job_id, "state", {"state": "running", "reason": "its cancellation was requested"})
        audit_log.append(tx, audit_log.Entry(actor, "job.cancel", tenant_id, job_id))
    return record(Job, row)


def set_deleted(db: Database, tenant_id: str, job_id: str, actor: str = "operator") -> Job | None:
    """Deletes an ended job's events, texts and Idempotency-Key, and takes it off every list. Returns the job as it was.

    A row without content remains, to account for what the job used. Returns None if the tenant has no such job; raises
    RunError if the job has not ended, or another job that has not ended reads its run.
    """
    if not is_id(job_id):
        return None
    here = _jobs.id == job_id, _jobs.tenant_id == tenant_id, _jobs.deleted.is_(None)
    with db.transaction() as tx:
        values = {"deleted": tx.now, "bytes": 0, "config": {}, "resolved": {}, "name": None, "failure": None}
        before = tx.execute(locked(tx, select(*COLUMNS).where(*here))).first()
        if before is None:
            return None
        if (reader := aged.reader_of(tx, tenant_id, job_id)) is not None:
            raise RunError(f"{reader} reads the run of {job_id} and has not ended; wait for it, or cancel it first")
        gone = tx.execute(update(tables.jobs).where(*here, _jobs.state.in_(ENDED)).values(values)).rowcount
        if not gone:
            raise RunError(f"{job_id} has not ended; cancel it first")
        tx.execute(delete(tables.events).where(tables.events.c.job_id == job_id))
        tx.execute(delete(tables.job_classifiers).where(tables.job_classifiers.c.job_id == job_id))
        tx.execute(delete(tables.idempotency).where(_used.tenant_id == tenant_id, _used.job_id == job_id))
        audit_log.append(tx, audit_log.Entry(actor, "job.delete", tenant_id, job_id))
    return record(Job, before)


def forget_idempotency(db: Database, before: float) -> int:
    """Deletes the Idempotency-Keys that were used before this time; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.idempotency).where(_used.created < before)).rowcount


def _check(new: NewJob) -> None:
    if new.name is not None and not (0 < len(new.name) <= 200 and new.name.isprintable()):
        raise ConfigError("name", "expected 1 to 200 printable characters")
    key = new.idempotency_key
    if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ConfigError("Idempotency-Key", "expected 1 to 255 printable ASCII characters")


def _submitted(tx: Transaction, who: tuple[str, str | None], new: NewJob, defaults: Quotas) -> tuple[Job, bool]:
    tenant_id, key_id = who
    limits = quotas.locked_limits(tx, tenant_id, defaults)
    job_id = new_id("job")
    if new.idempotency_key is not None:
        original = _original(tx, tenant_id, new, job_id)
        if original is not None:
            return original, False
    quotas.check_submission(tx, tenant_id, new, limits)
    job = _new_job(tx, tenant_id, key_id, new, job_id)
    tx.at_end(_write, job)
    tx.known[job_id] = job
    quotas.submitted(tx)
    events.add_at_end(tx, job_id, "state", {"state": "queued"})
    data = {"kind": new.kind}
    audit_log.append(tx, audit_log.Entry(key_id or "operator", "job.submit", tenant_id, job_id, data))
    return job, True


def _original(tx: Transaction, tenant_id: str, new: NewJob, job_id: str) -> Job | None:
    """Returns the job for which the key was used before; None if this is its first use, for `job_id`.

    Of two concurrent requests, the second waits in the INSERT until the first has committed, and then reads its row.
    """
    table = tables.idempotency
    values: dict[str, Any] = {"tenant_id": tenant_id, "key": new.idempotency_key, "body_hash": new.body_hash}
    values |= {"job_id": job_id, "created": tx.now}
    insert_one = postgresql.insert(table) if tx.locks_rows else sqlite.insert(table)
    inserted = insert_one.values(values).on_conflict_do_nothing().returning(table.c.job_id)
    if tx.execute(inserted).first() is not None:
        return None
    row = tx.execute(_USED, {"tenant_id": tenant_id, "key": new.idempotency_key}).one()
    return _earlier_job(tx, row, new.body_hash)


def _earlier_job(tx: Transaction, before: Row[Any], body_hash: str | None) -> Job:
    """Returns the job of a row of an Idempotency-Key that was used before."""
    if before.body_hash != body_hash:
        raise IdempotencyConflictError("this Idempotency-Key was used with another body", before.job_id)
    known: Job | None = tx.known.get(before.job_id)  # created in this transaction, and not written yet
    return known or record(Job, tx.execute(_BY_ID, {"job_id": before.job_id}).one())


def _new_job(tx: Transaction, tenant_id: str, key_id: str | None, new: NewJob, job_id: str) -> Job:
    values = _DEFAULTS | {"id": job_id, "tenant_id": tenant_id, "key_id": key_id, "kind": new.kind, "name": new.name}
    values |= {"config": new.config, "resolved": new.resolved, "state": "queued", "created": tx.now}
    return Job(**values, not_before=new.not_before)


def _write(tx: Transaction, rows: list[Job]) -> None:
    tx.execute(_INSERT, [vars(job) for job in rows])


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    wanted = {name: value for name, value in vars(filters).items() if value is not None}
    weights = wanted.pop("classifier_hash", None)
    conditions = [_jobs[name] == value for name, value in wanted.items()]
    if weights is not None:
        each = tables.job_classifiers.c
        conditions.append(
            or_(_jobs.classifier_hash == weights, _jobs.id.in_(select(each.job_id).where(each.hash == weights)))
        )
    return conditions
