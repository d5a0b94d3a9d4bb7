"""Jobs as their owners see them: submitted, read, listed, cancelled, deleted. `running` is the runners' side.

queued → running → (queued again after a slice) → finished | failed | cancelled
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, exc, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, quotas, tables, uploads, webhooks
from c2b_ray.endpoint.ledger.database import (
    RETRY_SECONDS,
    Database,
    DatabaseDownError,
    Transaction,
    is_id,
    locked,
    new_id,
    record,
)
from c2b_ray.endpoint.ledger.running import ended, lapsed
from c2b_ray.endpoint.ledger.tables import (
    COLUMNS,
    ENDED,
    FencedError,
    Filters,
    IdempotencyConflictError,
    Job,
    NewJob,
    Page,
)
from c2b_ray.errors import ConfigError, RunError

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

    Raises QuotaDenial if a quota is used up, IdempotencyConflictError if the key was used with another body, and
    ConfigError for an invalid field.
    """
    _check(new)
    work = partial(_submitted, caller=(tenant_id, key_id), new=new, defaults=defaults)
    return commit_together(db, tenant_id, work, savepoint=new.idempotency_key is not None)


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
    is_job = _jobs.id == job_id, _jobs.tenant_id == tenant_id, _jobs.deleted.is_(None)
    with db.transaction() as tx:
        ends_now = or_(_jobs.state == "queued", and_(_jobs.state == "running", lapsed(tx)))
        ends: dict[str, Any] = {"state": "cancelled", "ended": tx.now, "owner": None, "lease_until": None}
        ends |= {"cancel_requested": True, "granted": None, "fence": _jobs.fence + 1}
        row = tx.execute(update(tables.jobs).where(*is_job, ends_now).values(ends).returning(*COLUMNS)).first()
        if row is None:
            request = update(tables.jobs).where(*is_job, _jobs.state == "running", _jobs.cancel_requested.is_(False))
            row = tx.execute(request.values(cancel_requested=True).returning(*COLUMNS)).first()
        if row is None:
            existing = tx.execute(select(*COLUMNS).where(*is_job)).first()
            return None if existing is None else record(Job, existing)
        if row.state == "cancelled":
            ended(tx, row)
        else:
            webhooks.add_event(tx, job_id, "state", {"state": "running", "reason": "its cancellation was requested"})
        audit_log.append(tx, audit_log.Entry(actor, "job.cancel", tenant_id, job_id))
    return record(Job, row)


def set_deleted(db: Database, tenant_id: str, job_id: str, actor: str = "operator") -> Job | None:
    """Deletes an ended job's events, texts and Idempotency-Key, and takes it off every list. Returns the job as it was.

    A row without content remains, to account for what the job used. Returns None if the tenant has no such job; raises
    RunError if the job has not ended, or another job that has not ended reads its run.
    """
    if not is_id(job_id):
        return None
    is_job = _jobs.id == job_id, _jobs.tenant_id == tenant_id, _jobs.deleted.is_(None)
    with db.transaction() as tx:
        values = {"deleted": tx.now, "bytes": 0, "config": {}, "resolved": {}, "name": None, "failure": None}
        row = tx.execute(locked(tx, select(*COLUMNS).where(*is_job))).first()
        if row is None:
            return None
        if (reader := uploads.reader_of(tx, tenant_id, job_id)) is not None:
            raise RunError(f"{reader} reads the run of {job_id} and has not ended; wait for it, or cancel it first")
        deleted = tx.execute(update(tables.jobs).where(*is_job, _jobs.state.in_(ENDED)).values(values)).rowcount
        if not deleted:
            raise RunError(f"{job_id} has not ended; cancel it first")
        tx.execute(delete(tables.events).where(tables.events.c.job_id == job_id))
        tx.execute(delete(tables.job_classifiers).where(tables.job_classifiers.c.job_id == job_id))
        tx.execute(delete(tables.idempotency).where(_used.tenant_id == tenant_id, _used.job_id == job_id))
        audit_log.append(tx, audit_log.Entry(actor, "job.delete", tenant_id, job_id))
    return record(Job, row)


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


def _submitted(tx: Transaction, caller: tuple[str, str | None], new: NewJob, defaults: Quotas) -> tuple[Job, bool]:
    tenant_id, key_id = caller
    limits = quotas.locked_limits(tx, tenant_id, defaults)
    job_id = new_id("job")
    if new.idempotency_key is not None:
        original = _original(tx, tenant_id, new, job_id)
        if original is not None:
            return original, False
    quotas.check_submission(tx, tenant_id, new, limits)
    values = _DEFAULTS | {"id": job_id, "tenant_id": tenant_id, "key_id": key_id, "kind": new.kind, "name": new.name}
    values |= {"config": new.config, "resolved": new.resolved, "state": "queued", "created": tx.now}
    job = Job(**values, not_before=new.not_before)
    tx.at_end(_write, job)
    tx.known[job_id] = job
    quotas.submitted(tx)
    webhooks.add_event_at_end(tx, job_id, "state", {"state": "queued"})
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


def _earlier_job(tx: Transaction, earlier: Row[Any], body_hash: str | None) -> Job:
    """Returns the job of a row of an Idempotency-Key that was used before."""
    if earlier.body_hash != body_hash:
        raise IdempotencyConflictError("this Idempotency-Key was used with another body", earlier.job_id)
    cached: Job | None = tx.known.get(earlier.job_id)  # created in this transaction, and not written yet
    return cached or record(Job, tx.execute(_BY_ID, {"job_id": earlier.job_id}).one())


def _write(tx: Transaction, rows: list[Job]) -> None:
    tx.execute(_INSERT, [vars(job) for job in rows])


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    values = {name: value for name, value in vars(filters).items() if value is not None}
    weights = values.pop("classifier_hash", None)
    conditions = [_jobs[name] == value for name, value in values.items()]
    if weights is not None:
        job_classifiers = tables.job_classifiers.c
        conditions.append(
            or_(
                _jobs.classifier_hash == weights,
                _jobs.id.in_(select(job_classifiers.job_id).where(job_classifiers.hash == weights)),
            )
        )
    return conditions


# Lists of jobs for the web pages: filtered, sorted by a column, one page at a time.


ORDERS: Mapping[str, ColumnElement[Any]] = {
    "created": _jobs.created,
    "name": func.coalesce(_jobs.name, ""),
    "kind": _jobs.kind,
    "state": _jobs.state,
    "images": _jobs.images,
    "ended": func.coalesce(_jobs.ended, 0.0),
}


@dataclass(frozen=True)
class JobFilters:
    """Filters and order of a list. An empty text means any. `name`: part of the name, in any case."""

    state: str = ""
    kind: str = ""
    name: str = ""
    order: str = "created"
    descending: bool = True


def listing(
    db: Database, tenant_id: str, filters: JobFilters, cursor: tuple[Any, str] | None = None, limit: int = 50
) -> Page:
    """Returns a page of one tenant's jobs. `filters.order` is a key of `ORDERS`; jobs with equal values are sorted by
    id."""
    by = ORDERS[filters.order]
    statement = select(*COLUMNS, by.label("by")).where(_jobs.tenant_id == tenant_id, *_conditions_of_listing(filters))
    if cursor is not None:
        value, job_id = cursor
        later = (by < value, _jobs.id < job_id) if filters.descending else (by > value, _jobs.id > job_id)
        statement = statement.where(or_(later[0], and_(by == value, later[1])))
    ordered = (by.desc(), _jobs.id.desc()) if filters.descending else (by, _jobs.id)
    with db.reading() as tx:
        rows = tx.execute(statement.order_by(*ordered).limit(limit + 1)).all()
    items = [record(Job, row[:-1]) for row in rows[:limit]]
    return Page(items, (rows[limit - 1][-1], items[-1].id) if len(rows) > limit else None)


def _conditions_of_listing(filters: JobFilters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_jobs.deleted.is_(None)]
    if filters.state:
        conditions.append(_jobs.state == filters.state)
    if filters.kind:
        conditions.append(_jobs.kind == filters.kind)
    if filters.name:
        conditions.append(func.lower(_jobs.name).contains(filters.name.lower(), autoescape=True))
    return conditions


# Lets a job that is submitted again after it was cancelled, or failed by a temporary problem, continue its earlier
# run.


_LATEST = 50
_STATES = ("cancelled", "failed")
"""The states whose jobs may leave a run; a job that failed for good names none."""
NOTE = "run"
"""The kind of the events that record a take-over."""


def predecessor(db: Database, job: Job) -> tuple[str, str] | None:
    """Returns the latest cancelled or failed job with this config and a run, as (job id, path of the run); None if
    there is none."""
    conditions = (
        _jobs.tenant_id == job.tenant_id, _jobs.kind == job.kind, _jobs.state.in_(_STATES), _jobs.id != job.id,
        _jobs.deleted.is_(None), _jobs.run_path.is_not(None),
    )  # fmt: skip
    statement = select(_jobs.id, _jobs.run_path, _jobs.resolved).where(*conditions).order_by(_jobs.ended.desc())
    with db.reading() as tx:
        rows = tx.execute(statement.limit(_LATEST)).all()
    return next(((row.id, row.run_path) for row in rows if row.resolved == job.resolved), None)


def take_over(db: Database, job: Job, previous: tuple[str, str]) -> Job | None:
    """Passes the run of `previous` on to a running job, and returns the job as it is now.

    The new job counts the run's images too, and the earlier one keeps its count; they were booked to the earlier job's
    key and are not booked again. Returns None if the run was deleted or taken meanwhile; raises FencedError if the job
    is no longer held.
    """
    old, path = previous
    with db.transaction() as tx:
        has_it = _jobs.id == old, _jobs.run_path == path, _jobs.state.in_(_STATES), _jobs.deleted.is_(None)
        gives = update(tables.jobs).where(*has_it).values(run_path=None, bytes=0)
        earlier = tx.execute(gives.returning(_jobs.images)).first()
        if earlier is None:
            return None
        mine = _jobs.id == job.id, _jobs.fence == job.fence, _jobs.state == "running"
        statement = update(tables.jobs).where(*mine).values(run_path=path, images=_jobs.images + earlier.images)
        row = tx.execute(statement.returning(*COLUMNS)).first()
        if row is None:
            raise FencedError(f"{job.id}: another runner has it, or it has ended")
        webhooks.add_event(tx, old, NOTE, {"message": "its run was taken over", "reason": f"{job.id} continues it"})
        webhooks.add_event(tx, job.id, NOTE, {"message": "continues an earlier run", "reason": f"that of {old}"})
    return record(Job, row)


# Combines writes of one process that would wait for each other into one transaction: a commit costs more than a
# write.


T = TypeVar("T")
PATIENCE_SECONDS = 10.0
MOST_TOGETHER = 32
_groups: dict[tuple[int, str], _Group] = {}
_lock = threading.Lock()


def commit_together(db: Database, name: str, work: Callable[[Transaction], T], savepoint: bool = True) -> T:
    """Runs `work` in a transaction, alone or with others of this `name` that wait in this process; returns its result.

    `savepoint`: True where `work` may have written something when it raises, which is then rolled back. Work that
    refuses before it writes needs no savepoint, which saves two messages to the server while all others wait.

    Raises what `work` raises, after undoing its writes, and DatabaseDownError like `Database.transaction`.
    """
    key = id(db), name
    with _lock:
        group = _groups.setdefault(key, _Group())
        group.inside += 1
    call = _Call(work, savepoint)
    try:
        with group.taking:  # else it could be lost between the reading and the emptying of the list
            group.waiting.append(call)
        if not group.leading.acquire(timeout=PATIENCE_SECONDS):
            with group.taking:
                if call in group.waiting:
                    group.waiting.remove(call)
                    raise DatabaseDownError("too many requests wait to write to the database", RETRY_SECONDS)
            call.done.wait()
            return call.result()
        try:
            while not call.done.is_set():  # more may wait than one transaction takes
                group.run(db)
        finally:
            group.leading.release()
        return call.result()
    finally:
        with _lock:
            group.inside -= 1
            if not group.inside:
                del _groups[key]


class _Call(Generic[T]):
    """One write, and its result or error."""

    def __init__(self, work: Callable[[Transaction], T], savepoint: bool) -> None:
        self.work, self.savepoint, self.done = work, savepoint, threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def run(self, tx: Transaction) -> None:
        """Runs the write. An error of the database ends the whole transaction, except for a constraint's."""
        try:
            part = tx.part()
            with tx.connection.begin_nested() if self.savepoint else nullcontext():
                self.value = self.work(part)
            tx.take(part)
        except exc.IntegrityError as error:
            self.error = error
            if not self.savepoint:
                raise
        except exc.DBAPIError:
            raise
        except Exception as error:
            self.error = error


class _Group:
    """The writes of one name. The thread that holds `leading` runs those of all that wait."""

    def __init__(self) -> None:
        self.leading, self.taking = threading.Lock(), threading.Lock()
        self.waiting: list[_Call[Any]] = []
        self.inside = 0

    def run(self, db: Database) -> None:
        with self.taking:
            calls, self.waiting[:MOST_TOGETHER] = self.waiting[:MOST_TOGETHER], []
        try:
            with db.transaction() as tx:
                if len(calls) == 1:
                    calls[0].value = calls[0].work(tx)
                else:
                    for call in calls:
                        call.run(tx)
        except BaseException as error:
            for call in calls:
                call.error = call.error or error
        finally:
            for call in calls:
                call.done.set()
