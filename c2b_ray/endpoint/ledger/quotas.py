"""What a tenant may use, checked against what it uses: jobs at once, images and model seconds a day, bytes, requests.

The ledger is the one place that counts, so that any number of replicas of the API keep one limit. Two submissions of
one tenant at once are checked one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import func, select

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import tables, usage
from c2b_ray.endpoint.ledger.database import Database, Transaction, locked, record
from c2b_ray.endpoint.ledger.job import OPEN, NewJob
from c2b_ray.endpoint.ledger.tenants import Tenant, tenant_columns
from c2b_ray.errors import C2BError, InputError

Quota = Literal["concurrent_jobs", "images_per_day", "model_seconds_per_day", "storage_bytes", "requests"]
ANY_MODEL = "*"
JOB_SECONDS = 30.0
"""After what time it is worth another try where a job must end first, of which nobody knows when."""
STORAGE_SECONDS = 3600.0


class Denied(C2BError):
    """A quota is used up. `retry_after`: seconds until it is worth another try; `limit` and `remaining` in the quota's
    own unit."""

    def __init__(self, message: str, quota: Quota, *, retry_after: float, limit: float, remaining: float) -> None:
        super().__init__(message)
        self.quota, self.retry_after, self.limit, self.remaining = quota, retry_after, limit, remaining


def locked_limits(tx: Transaction, tenant_id: str, defaults: Quotas) -> Quotas:
    """What the tenant may use. Until the transaction ends, no other one of this tenant gets here."""
    row = tx.execute(locked(tx, select(*tenant_columns()).where(tables.tenants.c.id == tenant_id))).first()
    if row is None:
        raise InputError(f"{tenant_id}: no such tenant")
    return record(Tenant, row).limits(defaults)


def check_submission(tx: Transaction, tenant_id: str, new: NewJob, limits: Quotas) -> None:
    """Denied where one more job is too many, or what a job uses is used up."""
    open_jobs = _open_jobs(tx, tenant_id)
    if open_jobs >= limits.concurrent_jobs:
        raise Denied(
            f"{open_jobs} jobs wait or run, of {limits.concurrent_jobs} at once; wait for one to end, or cancel one",
            "concurrent_jobs", retry_after=JOB_SECONDS, limit=limits.concurrent_jobs, remaining=0,
        )  # fmt: skip
    check_use(tx, tenant_id, limits, new.models, new.images)
    check_storage(tx, tenant_id, limits, 0)


def check_use(tx: Transaction, tenant_id: str, limits: Quotas, models: Iterable[str] = (), images: int = 0) -> None:
    """Denied where today's images, with `images` more, or today's seconds of one of `models` are used up. Without
    `models`, every model that the tenant used today counts."""
    if limits.images_per_day is None and not limits.model_seconds_per_day:
        return
    used = usage.by_model(tx, tenant_id, usage.day_of(tx.now))
    tomorrow = usage.DAY - tx.now % usage.DAY
    _check_images(sum(count for count, _ in used.values()), images, limits.images_per_day, tomorrow)
    for model in sorted(set(models) or set(used)):
        limit = _seconds(limits, model)
        seconds = used.get(model, (0, 0.0))[1]
        if limit is not None and seconds >= limit:
            raise Denied(
                f"{model}: {seconds:g} of {limit:g} seconds of today are used; they begin anew at midnight UTC",
                "model_seconds_per_day", retry_after=tomorrow, limit=limit, remaining=0,
            )  # fmt: skip


def _check_images(used: int, more: int, limit: int | None, tomorrow: float) -> None:
    if limit is None or used + max(1, more) <= limit:
        return
    raise Denied(
        f"{used} of {limit} images of today are used, {more or 'more'} would follow; they begin anew at midnight UTC",
        "images_per_day", retry_after=tomorrow, limit=limit, remaining=max(0, limit - used),
    )  # fmt: skip


def check_storage(tx: Transaction, tenant_id: str, limits: Quotas, more: int) -> None:
    """Denied where uploads and runs, with `more` bytes, are more than the tenant may keep."""
    used = stored(tx, tenant_id)
    if used + more > limits.storage_bytes or (not more and used >= limits.storage_bytes > 0):
        raise Denied(
            f"{used} of {limits.storage_bytes} bytes are stored; delete uploads or runs",
            "storage_bytes", retry_after=STORAGE_SECONDS, limit=limits.storage_bytes,
            remaining=max(0, limits.storage_bytes - used),
        )  # fmt: skip


def stored(tx: Transaction, tenant_id: str) -> int:
    """Bytes of a tenant's uploads and runs."""
    uploads, jobs = tables.uploads.c, tables.jobs.c
    of_uploads = select(func.coalesce(func.sum(uploads.bytes), 0)).where(uploads.tenant_id == tenant_id)
    of_runs = select(func.coalesce(func.sum(jobs.bytes), 0)).where(jobs.tenant_id == tenant_id, tables.STORED)
    return int(tx.scalar(select(of_uploads.scalar_subquery() + of_runs.scalar_subquery())))


def exceeded(db: Database, tenant_id: str, defaults: Quotas, models: Iterable[str] = ()) -> Denied | None:
    """What of a running job's tenant is used up, for its runner to end the slice; None where nothing is."""
    with db.reading() as tx:
        row = tx.execute(select(*tenant_columns()).where(tables.tenants.c.id == tenant_id)).one()
        limits = record(Tenant, row).limits(defaults)
        try:
            check_use(tx, tenant_id, limits, models)
            check_storage(tx, tenant_id, limits, 0)
        except Denied as denied:
            return denied
    return None


def standing(db: Database, tenant_id: str, defaults: Quotas) -> dict[str, dict[str, Any]]:
    """Each quota's `limit` and `used`, for people: limits are null where there are none."""
    with db.reading() as tx:
        row = tx.execute(select(*tenant_columns()).where(tables.tenants.c.id == tenant_id)).one()
        limits = record(Tenant, row).limits(defaults)
        open_jobs, held = _open_jobs(tx, tenant_id), stored(tx, tenant_id)
        used = usage.by_model(tx, tenant_id, usage.day_of(tx.now))
    models = sorted({*used, *limits.model_seconds_per_day} - {ANY_MODEL})
    seconds = {model: {"limit": _seconds(limits, model), "used": used.get(model, (0, 0.0))[1]} for model in models}
    return {
        "concurrent_jobs": {"limit": limits.concurrent_jobs, "used": open_jobs},
        "images_per_day": {"limit": limits.images_per_day, "used": sum(count for count, _ in used.values())},
        "storage_bytes": {"limit": limits.storage_bytes, "used": held},
        "requests_per_second": {"limit": limits.requests_per_second, "burst": limits.burst},
        "model_seconds_per_day": seconds,
    }


def _seconds(limits: Quotas, model: str) -> float | None:
    return limits.model_seconds_per_day.get(model, limits.model_seconds_per_day.get(ANY_MODEL))


def _open_jobs(tx: Transaction, tenant_id: str) -> int:
    jobs = tables.jobs.c
    where = jobs.tenant_id == tenant_id, jobs.state.in_(OPEN), tables.OPEN
    return int(tx.scalar(select(func.count()).where(*where)))
