"""Checks a tenant's use against its quotas: concurrent jobs, images and model seconds a day, bytes, requests.

Only the ledger counts, so all replicas of the API share one limit. Concurrent submissions of one tenant are checked one
after the other.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import BindParameter, ColumnElement, Select, bindparam, case, delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, Transaction, record
from c2b_ray.endpoint.ledger.tables import Job, NewJob, Progress
from c2b_ray.endpoint.ledger.tenants import Tenant, tenant_columns
from c2b_ray.errors import C2BError, InputError

# The use of tenants: images and seconds of each model, by key and UTC day. It knows no prices and no limits.


_usage = tables.usage.c
DAY = 86_400.0


@dataclass(frozen=True)
class Spend:
    """A key's use of a model on a day (YYYY-MM-DD). `requests`: the number of reports that were added up."""

    tenant_id: str
    key_id: str
    model: str
    day: str
    images: int
    model_seconds: float
    requests: int


def day_of(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")


def add(tx: Transaction, tenant_id: str, key_id: str | None, model: str, images: int, seconds: float) -> None:
    """Adds to today's use, in the caller's transaction."""
    insert = postgresql.insert(tables.usage) if tx.locks_rows else sqlite.insert(tables.usage)
    values: dict[str, Any] = {"tenant_id": tenant_id, "key_id": key_id or "", "model": model, "day": day_of(tx.now)}
    values |= {"images": images, "model_seconds": seconds, "requests": 1}
    sums = {name: _usage[name] + values[name] for name in ("images", "model_seconds", "requests")}
    tx.execute(insert.values(values).on_conflict_do_update(index_elements=list(tables.usage.primary_key), set_=sums))


def add_of_job(tx: Transaction, job: Job, progress: Progress) -> None:
    """Adds a job's use, in the order of models' names, so that transactions lock several rows in the same order."""
    for model in sorted({*progress.images, *progress.model_seconds}):
        add(tx, job.tenant_id, job.key_id, model, progress.images.get(model, 0), progress.model_seconds.get(model, 0.0))


def spend(
    db: Database,
    tenant_id: str | None,
    first_day: str,
    last_day: str,
    key_id: str | None = None,
    after: tuple[str, ...] | None = None,
    limit: int | None = None,
) -> list[Spend]:
    """Returns use by day, tenant, key and model, first and last day included; models in the order of their hashes.

    `tenant_id` None: all tenants, for operators. `key_id` None: all keys. `after`: the `position` of the row after
    which to begin; `limit`: the most rows.
    """
    names = ("tenant_id", "key_id", "model", "day", "images", "model_seconds", "requests")
    statement = select(*(_usage[name] for name in names)).where(_usage.day.between(first_day, last_day))
    if tenant_id is not None:
        statement = statement.where(_usage.tenant_id == tenant_id)
    if key_id is not None:
        statement = statement.where(_usage.key_id == key_id)
    order = _usage.day, _usage.tenant_id, _usage.key_id, func.md5(_usage.model)
    if after is not None:
        statement = statement.where(tuple_(*order) > tuple_(*after))
    with db.reading() as tx:
        return [record(Spend, row) for row in tx.execute(statement.order_by(*order).limit(limit))]


def position(row: Spend) -> tuple[str, ...]:
    """Returns the place of a row in the order of `spend`. It is short; a model's spec may be long."""
    return row.day, row.tenant_id, row.key_id, hashlib.md5(row.model.encode(), usedforsecurity=False).hexdigest()


def by_model(tx: Transaction, tenant_id: str, day: str) -> dict[str, tuple[int, float]]:
    """Returns the images and seconds of each of a tenant's models on a day."""
    sums = func.sum(_usage.images), func.sum(_usage.model_seconds)
    conditions = _usage.tenant_id == tenant_id, _usage.day == day
    rows: Iterable[Any] = tx.execute(select(_usage.model, *sums).where(*conditions).group_by(_usage.model))
    return {model: (int(images), float(seconds)) for model, images, seconds in rows}


def seconds_by_tenant(db: Database, days: int = 2) -> dict[str, float]:
    """Returns the model seconds of each tenant, today and the `days` - 1 days before. The fair choice of jobs uses
    them."""
    with db.reading() as tx:
        first_day = day_of(db.now(tx.connection) - (days - 1) * DAY)
        sums = select(_usage.tenant_id, func.sum(_usage.model_seconds)).where(_usage.day >= first_day)
        rows: Iterable[Any] = tx.execute(sums.group_by(_usage.tenant_id))
        return {tenant: float(seconds) for tenant, seconds in rows}


Quota = Literal["concurrent_jobs", "images_per_day", "model_seconds_per_day", "storage_bytes", "requests"]
ANY_MODEL = "*"
JOB_SECONDS = 30.0
"""`retry_after` where a job must end first: a guess, since nobody knows when it will."""
STORAGE_SECONDS = 3600.0
_COUNTED = "jobs and bytes"


def _held_statement() -> Select[Any]:
    uploads, jobs = tables.uploads.c, tables.jobs.c
    tenant_id: BindParameter[str] = bindparam("tenant_id")
    open_jobs = select(func.count()).where(jobs.tenant_id == tenant_id, tables.OPEN)
    of_uploads = select(func.coalesce(func.sum(uploads.bytes), 0)).where(uploads.tenant_id == tenant_id)
    of_runs = select(func.coalesce(func.sum(jobs.bytes), 0)).where(jobs.tenant_id == tenant_id, tables.STORED)
    return select(*(count.scalar_subquery() for count in (open_jobs, of_uploads, of_runs)))


_HELD = _held_statement()


class QuotaDenial(C2BError):
    """A quota is used up. `retry_after`: seconds until a retry is worthwhile. `limit`, `remaining`: in the quota's
    unit. `free_in`: seconds until time alone frees the quota; None where something must be done first."""

    def __init__(
        self,
        message: str,
        quota: Quota,
        *,
        retry_after: float,
        limit: float,
        remaining: float,
        free_in: float | None = None,
    ) -> None:
        super().__init__(message)
        self.quota, self.retry_after, self.limit, self.remaining = quota, retry_after, limit, remaining
        self.free_in = free_in


def locked_limits(tx: Transaction, tenant_id: str, defaults: Quotas) -> Quotas:
    """Returns the tenant's quotas, and locks them: other transactions of this tenant wait here until this one ends."""
    if (cached := tx.known.get(tenant_id)) is not None:
        tx.now = cached[1]
        limits: Quotas = cached[0]
        return limits
    row = tx.execute(_limits_statement(tx.clock(), tx.locks_rows), {"tenant_id": tenant_id}).first()
    if row is None:
        raise InputError(f"{tenant_id}: no such tenant")
    tx.now = row[-1]
    limits = record(Tenant, row[:-1]).limits(defaults)
    tx.known[tenant_id] = limits, tx.now
    return limits


@lru_cache(maxsize=16)
def _limits_statement(clock: ColumnElement[float], locks: bool) -> Select[Any]:
    """Builds the statement once, because building it takes as long as executing it."""
    statement = select(*tenant_columns(), clock).where(tables.tenants.c.id == bindparam("tenant_id"))
    return statement.with_for_update(key_share=True) if locks else statement


def check_submission(tx: Transaction, tenant_id: str, new: NewJob, limits: Quotas) -> None:
    """Raises QuotaDenial if the tenant may not submit one more job, or has used up what the job needs."""
    if _COUNTED not in tx.known:
        tx.known[_COUNTED] = jobs_and_bytes(tx, tenant_id)
    open_jobs, bytes_ = tx.known[_COUNTED]
    if open_jobs >= limits.concurrent_jobs:
        raise QuotaDenial(
            f"{open_jobs} jobs wait or run, of {limits.concurrent_jobs} at once; wait for one to end, or cancel one",
            "concurrent_jobs", retry_after=JOB_SECONDS, limit=limits.concurrent_jobs, remaining=0,
        )  # fmt: skip
    check_storage(bytes_, limits)
    check_use(tx, tenant_id, limits, new.models, new.images)


def refusal(db: Database, tenant_id: str, new: NewJob, defaults: Quotas) -> QuotaDenial | None:
    """Returns why a submission would be refused now; None if it would not. Nothing is locked or counted."""
    with db.reading() as tx:
        row = tx.execute(select(*tenant_columns()).where(tables.tenants.c.id == tenant_id)).one()
        try:
            check_submission(tx, tenant_id, new, record(Tenant, row).limits(defaults))
        except QuotaDenial as denial:
            return denial
    return None


def submitted(tx: Transaction) -> None:
    """Counts a job that was written, for the next submission in this transaction."""
    open_jobs, bytes_ = tx.known[_COUNTED]
    tx.known[_COUNTED] = open_jobs + 1, bytes_


def check_running(db: Database, tenant_id: str, models: Iterable[str], defaults: Quotas) -> None:
    """Raises QuotaDenial if a running job must end: more is stored, or was used today, than quotas allow.

    A job may use up a quota to its last image or second; only what exceeds the quota ends it.
    """
    with db.reading() as tx:
        row = tx.execute(select(*tenant_columns()).where(tables.tenants.c.id == tenant_id)).one()
        limits = record(Tenant, row).limits(defaults)
        check_storage(jobs_and_bytes(tx, tenant_id)[1], limits, more=0)
        check_use(tx, tenant_id, limits, models, runs=True)


def check_use(
    tx: Transaction,
    tenant_id: str,
    limits: Quotas,
    models: Iterable[str] = (),
    images: int = 0,
    *,
    runs: bool = False,
) -> None:
    """Raises QuotaDenial if today's images, with `images` more, or today's seconds of one of `models` are used up.

    Without `models`, it checks every model that the tenant used today. `runs`: for a job that runs already, raises only
    if a quota is exceeded.
    """
    if limits.images_per_day is None and not limits.model_seconds_per_day:
        return
    use_by_model = by_model(tx, tenant_id, day_of(tx.now))
    tomorrow = DAY - tx.now % DAY
    wanted = 0 if runs else max(1, images)
    _check_images(sum(count for count, _ in use_by_model.values()), wanted, limits.images_per_day, tomorrow)
    for model in sorted(set(models) or set(use_by_model)):
        limit = _seconds(limits, model)
        seconds = use_by_model.get(model, (0, 0.0))[1]
        if limit is not None and (seconds > limit or (seconds == limit and not runs)):
            raise QuotaDenial(
                f"{model}: {seconds:g} of {limit:g} seconds of today are used; counts restart at midnight UTC",
                "model_seconds_per_day", retry_after=tomorrow, limit=limit, remaining=0,
                free_in=tomorrow if limit else None,
            )  # fmt: skip


def _check_images(count: int, wanted: int, limit: int | None, tomorrow: float) -> None:
    if limit is None or count + wanted <= limit:
        return
    if wanted > limit:
        message = (
            f"the job may ask about {wanted} images, and a day has {limit}: no day would do; name fewer images, or ask "
            "the operator for more"
        )
    else:
        would = f", {wanted} more would follow" if wanted > 1 else ""
        message = f"{count} of {limit} images of today are used{would}; counts restart at midnight UTC"
    raise QuotaDenial(
        message, "images_per_day", retry_after=tomorrow, limit=limit, remaining=max(0, limit - count),
        free_in=None if wanted > limit else tomorrow,
    )  # fmt: skip


def check_storage(used: int, limits: Quotas, more: int = 1) -> None:
    """Raises QuotaDenial if `used` bytes of uploads and runs plus `more` exceed what the tenant may store."""
    if used + more > limits.storage_bytes:
        raise QuotaDenial(
            f"{used} of {limits.storage_bytes} bytes are stored; delete uploads or runs",
            "storage_bytes", retry_after=STORAGE_SECONDS, limit=limits.storage_bytes,
            remaining=max(0, limits.storage_bytes - used),
        )  # fmt: skip


def jobs_and_bytes(tx: Transaction, tenant_id: str) -> tuple[int, int]:
    """Returns a tenant's number of queued and running jobs, and the bytes of its uploads and runs."""
    row: Any = tx.execute(_HELD, {"tenant_id": tenant_id}).one()
    return int(row[0]), int(row[1]) + int(row[2])


def limits_and_use(db: Database, tenant_id: str, defaults: Quotas) -> dict[str, dict[str, Any]]:
    """Returns `limit` and `used` of each quota, for people. A limit of None means no limit."""
    with db.reading() as tx:
        row = tx.execute(select(*tenant_columns()).where(tables.tenants.c.id == tenant_id)).one()
        limits = record(Tenant, row).limits(defaults)
        open_jobs, bytes_ = jobs_and_bytes(tx, tenant_id)
        used = by_model(tx, tenant_id, day_of(tx.now))
    models = sorted({*used, *limits.model_seconds_per_day} - {ANY_MODEL})
    seconds = {model: {"limit": _seconds(limits, model), "used": used.get(model, (0, 0.0))[1]} for model in models}
    return {
        "concurrent_jobs": {"limit": limits.concurrent_jobs, "used": open_jobs},
        "images_per_day": {"limit": limits.images_per_day, "used": sum(count for count, _ in used.values())},
        "storage_bytes": {"limit": limits.storage_bytes, "used": bytes_},
        "requests_per_second": {"limit": limits.requests_per_second, "burst": limits.burst},
        "model_seconds_per_day": seconds,
    }


def _seconds(limits: Quotas, model: str) -> float | None:
    return limits.model_seconds_per_day.get(model, limits.model_seconds_per_day.get(ANY_MODEL))


# Token buckets in the ledger limit the rate of requests: `rate` tokens a second flow in, up to `burst`.


_buckets = tables.buckets.c
FRESH_SECONDS = 1.0
_HANDFULS = 10
"""A handful is at most a tenth of the burst, and at most the tokens of a tenth of a second."""
_REMEMBERED = 10_000


@dataclass(frozen=True)
class Allowance:
    """The state of a bucket, for the headers of a response: its size in tokens, the tokens left, and the seconds until
    it is full."""

    limit: int
    remaining: int
    reset: float


def take(db: Database, name: str, rate: float, burst: int, tokens: float = 1.0) -> Allowance:
    """Takes tokens from a bucket, which starts full. Raises QuotaDenial, with the time until there will be enough."""
    with db.transaction() as tx:
        remaining = _take(tx, name, rate, burst, tokens)
        if remaining is None:
            available = tx.scalar(select(_filled(tx.now, rate, burst)).where(_buckets.name == name)) or 0.0
            reset = update(tables.buckets).where(_buckets.name == name, _buckets.updated > tx.now + _AHEAD_S)
            tx.execute(reset.values(updated=tx.now))  # else it would stay empty until the clock has caught up
    if remaining is None:
        raise _denied(rate, burst, available, tokens)
    return Allowance(burst, int(remaining), (burst - remaining) / rate)


_AHEAD_S = 1.0
"""Seconds by which a bucket's last change lies ahead only if the clock was set back since."""


class Throttle:
    """Takes tokens from buckets for one process. It is safe to use from several threads."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._handfuls: dict[str, _Handful] = {}

    def take(self, name: str, rate: float, burst: int) -> Allowance:
        """Takes one token. Raises QuotaDenial, without a query while no token can be there by the last answer."""
        with self._lock:
            if len(self._handfuls) >= _REMEMBERED:
                self._handfuls.clear()
            drawn_tokens = self._handfuls.setdefault(name, _Handful())
        with drawn_tokens.lock:
            now = time.monotonic()
            if drawn_tokens.empty_until > now:
                raise _denied(rate, burst, 1 - rate * (drawn_tokens.empty_until - now), 1)
            if drawn_tokens.tokens < 1 or now >= drawn_tokens.stale_at:
                self._fill(drawn_tokens, name, rate, burst)
            drawn_tokens.tokens -= 1
            remaining = drawn_tokens.left + drawn_tokens.tokens
            return Allowance(burst, int(remaining), (burst - remaining) / rate)

    def _fill(self, drawn_tokens: _Handful, name: str, rate: float, burst: int) -> None:
        batch = max(1, int(min(rate, burst) / _HANDFULS))
        for tokens in dict.fromkeys((batch, 1)):
            try:
                allowance = take(self._db, name, rate, burst, tokens)
            except QuotaDenial as denied:
                if tokens > 1:
                    continue
                drawn_tokens.tokens, drawn_tokens.empty_until = 0, time.monotonic() + denied.retry_after
                raise
            except DatabaseDownError as error:
                if not error.readable:
                    raise
                allowance = Allowance(burst, 0, 0.0)  # what only reads the ledger goes on
            drawn_tokens.tokens, drawn_tokens.left = tokens, allowance.remaining
            drawn_tokens.stale_at = time.monotonic() + FRESH_SECONDS
            return


class _Handful:
    """Tokens that this process took from a bucket and may spend until `stale_at`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens, self.left = 0, 0
        self.stale_at = self.empty_until = 0.0


def forget(db: Database, untouched_since: float) -> int:
    """Deletes the buckets that nobody took from since this time, which are full by now; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.buckets).where(_buckets.updated < untouched_since)).rowcount


def _take(tx: Transaction, name: str, rate: float, burst: int, tokens: float) -> float | None:
    """Takes tokens and returns how many are left; None if there are not enough.

    It is one statement, so that concurrent calls take one after the other.
    """
    now = tx.now
    insert = postgresql.insert(tables.buckets) if tx.locks_rows else sqlite.insert(tables.buckets)
    available = _filled(now, rate, burst)
    statement = insert.values(name=name, tokens=burst - tokens, updated=now).on_conflict_do_update(
        index_elements=["name"], set_={"tokens": available - tokens, "updated": now}, where=available >= tokens
    )
    row = tx.execute(statement.returning(_buckets.tokens)).first()
    return None if row is None else float(row[0])


def _filled(now: float, rate: float, burst: int) -> ColumnElement[float]:
    """Returns an expression for the tokens in a bucket now.

    A bucket whose last change lies in the future, because the clock was set back, fills from now on.
    """
    elapsed = case((_buckets.updated > now, 0.0), else_=now - _buckets.updated)
    level = _buckets.tokens + elapsed * rate
    return case((level > burst, float(burst)), else_=level)


def _denied(rate: float, burst: int, available: float, wanted: float) -> QuotaDenial:
    wait = max(0.0, wanted - available) / rate
    message = f"more than {rate:g} requests a second; the next in {wait:.1f} s"
    return QuotaDenial(message, "requests", retry_after=wait, limit=burst, remaining=max(0, int(available)))
