"""The use of tenants: images and seconds of each model, by key and UTC day. It knows no prices and no limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, record
from c2b_ray.endpoint.ledger.job import Job, Progress

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
    more = {name: _usage[name] + values[name] for name in ("images", "model_seconds", "requests")}
    tx.execute(insert.values(values).on_conflict_do_update(index_elements=list(tables.usage.primary_key), set_=more))


def add_of_job(tx: Transaction, job: Job, used: Progress) -> None:
    """Adds a job's use, in the order of models' names, so that transactions lock several rows in the same order."""
    for model in sorted({*used.images, *used.model_seconds}):
        add(tx, job.tenant_id, job.key_id, model, used.images.get(model, 0), used.model_seconds.get(model, 0.0))


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
    where = _usage.tenant_id == tenant_id, _usage.day == day
    rows: Iterable[Any] = tx.execute(select(_usage.model, *sums).where(*where).group_by(_usage.model))
    return {model: (int(images), float(seconds)) for model, images, seconds in rows}


def seconds_by_tenant(db: Database, days: int = 2) -> dict[str, float]:
    """Returns the model seconds of each tenant, today and the `days` - 1 days before. The fair choice of jobs uses
    them."""
    with db.reading() as tx:
        since = day_of(db.now(tx.connection) - (days - 1) * DAY)
        sums = select(_usage.tenant_id, func.sum(_usage.model_seconds)).where(_usage.day >= since)
        rows: Iterable[Any] = tx.execute(sums.group_by(_usage.tenant_id))
        return {tenant: float(seconds) for tenant, seconds in rows}
