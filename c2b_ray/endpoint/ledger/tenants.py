"""Tenants: who has jobs, keys and uploads."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Column, ColumnElement, delete, exc, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, tables
from c2b_ray.endpoint.ledger.database import Database, locked, new_id, record
from c2b_ray.errors import ConfigError, InputError, RunError

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class ExistsError(InputError):
    """There is a tenant of this name."""


@dataclass(frozen=True)
class Tenant:
    """A tenant. `weight`: its share of the machines relative to other tenants' weights. `quotas`: fields that replace
    defaults."""

    id: str
    name: str
    weight: float
    quotas: dict[str, Any]
    created: float

    def limits(self, defaults: Quotas) -> Quotas:
        """Returns the tenant's quotas; `defaults` are the endpoint's."""
        if not self.quotas:
            return defaults
        return defaults.model_copy(update=_valid(self.quotas).model_dump(include=set(self.quotas)))


_COLUMNS = [tables.tenants.c[field.name] for field in fields(Tenant)]


def tenant_columns() -> list[Column[Any]]:
    """Returns the columns in the order of `Tenant`'s fields."""
    return list(_COLUMNS)


def create(
    db: Database, name: str, *, weight: float = 1.0, quotas: dict[str, Any] | None = None, actor: str = "operator"
) -> Tenant:
    """Creates a tenant. Raises ExistsError if the name is taken, ConfigError for an invalid name, weight or quota."""
    check_name(name)
    _check_weight(weight)
    _valid(quotas or {})
    try:
        with db.transaction() as tx:
            tenant = Tenant(new_id("tenant"), name, weight, quotas or {}, tx.now)
            tx.execute(tables.tenants.insert().values(vars(tenant)))
            audit_log.append(tx, audit_log.Entry(actor, "tenant.create", tenant.id, tenant.id, {"name": name}))
    except exc.IntegrityError as error:
        raise ExistsError(f"a tenant {name!r} exists") from error
    return tenant


def check_name(name: str) -> None:
    """Raises ConfigError if the text is no valid name of a tenant."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "name", f"{name[:100]!r} is not a valid name of a tenant: expected at most 64 of a-z, 0-9, '.', '_', '-'"
        )


def change(
    db: Database,
    tenant_id: str,
    *,
    weight: float | None = None,
    quotas: dict[str, Any] | None = None,
    actor: str = "operator",
) -> Tenant | None:
    """Changes the values that are not None. Returns None if there is no such tenant."""
    values: dict[str, Any] = {}
    if weight is not None:
        _check_weight(weight)
        values["weight"] = weight
    if quotas is not None:
        _valid(quotas)
        values["quotas"] = quotas
    if not values:
        return get(db, tenant_id)
    statement = update(tables.tenants).where(tables.tenants.c.id == tenant_id).values(values).returning(*_COLUMNS)
    with db.transaction() as tx:
        row = tx.execute(statement).first()
        if row is not None:
            audit_log.append(tx, audit_log.Entry(actor, "tenant.change", tenant_id, tenant_id, values))
    return None if row is None else record(Tenant, row)


def remove(db: Database, tenant_id: str, actor: str = "operator") -> bool:
    """Deletes a tenant and all its rows for good; returns whether it existed.

    The audit log keeps its entries, which hold ids and no contents. Raises RunError while jobs of the tenant wait or
    run. The caller deletes the tenant's files on the store.
    """
    jobs, hooks = tables.jobs.c, tables.webhooks.c
    with db.transaction() as tx:
        row = tx.execute(locked(tx, select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id))).first()
        if row is None:
            return False
        if tx.execute(select(jobs.id).where(tables.OPEN, jobs.tenant_id == tenant_id).limit(1)).first() is not None:
            raise RunError(f"{tenant_id}: jobs wait or run; cancel them first")
        of_jobs = select(jobs.id).where(jobs.tenant_id == tenant_id)
        of_hooks = select(hooks.id).where(hooks.tenant_id == tenant_id)
        tx.execute(delete(tables.events).where(tables.events.c.job_id.in_(of_jobs)))
        tx.execute(delete(tables.job_classifiers).where(tables.job_classifiers.c.job_id.in_(of_jobs)))
        tx.execute(delete(tables.deliveries).where(tables.deliveries.c.webhook_id.in_(of_hooks)))
        for table in (tables.webhooks, tables.uploads, tables.usage, tables.idempotency, tables.jobs, tables.keys):
            tx.execute(delete(table).where(table.c.tenant_id == tenant_id))
        tx.execute(delete(tables.tenants).where(tables.tenants.c.id == tenant_id))
        audit_log.append(tx, audit_log.Entry(actor, "tenant.remove", tenant_id, tenant_id))
    return True


def get(db: Database, tenant_id: str) -> Tenant | None:
    return _one(db, tables.tenants.c.id == tenant_id)


def by_name(db: Database, name: str) -> Tenant | None:
    return _one(db, tables.tenants.c.name == name)


def every(db: Database, after: str | None = None, limit: int | None = None) -> list[Tenant]:
    """Returns all tenants by name, for operators. `after`: the name after which to begin; `limit`: the most tenants."""
    statement = select(*_COLUMNS).order_by(tables.tenants.c.name).limit(limit)
    if after is not None:
        statement = statement.where(tables.tenants.c.name > after)
    with db.reading() as tx:
        return [record(Tenant, row) for row in tx.execute(statement)]


def _one(db: Database, condition: ColumnElement[bool]) -> Tenant | None:
    with db.reading() as tx:
        row = tx.execute(select(*_COLUMNS).where(condition)).first()
    return None if row is None else record(Tenant, row)


def _check_weight(weight: float) -> None:
    if not 0 < weight <= 1000:
        raise ConfigError("weight", f"{weight:g} is out of range: expected above 0 and at most 1000")


def _valid(quotas: dict[str, Any]) -> Quotas:
    from pydantic import ValidationError

    from c2b_ray.config.problems import first_problem

    try:
        return Quotas.model_validate(quotas)
    except ValidationError as error:
        raise first_problem(error, None, Quotas) from error


# Sessions of the web pages that were signed out early: copies of their cookies no longer work.


_ended = tables.ended_sessions.c


def end(db: Database, session: str, until: float) -> None:
    """Ends a session. `session`: its secret name. `until`: when it would have ended by itself. A second call has no
    effect."""
    with db.transaction() as tx:
        insert = postgresql.insert if tx.locks_rows else sqlite.insert
        values = {"id": _hash(session), "until": until}
        tx.execute(insert(tables.ended_sessions).values(values).on_conflict_do_nothing())


def has_ended(db: Database, session: str) -> bool:
    """Returns whether the session was signed out, in this or any other process of the endpoint."""
    with db.reading() as tx:
        return tx.scalar(select(_ended.until).where(_ended.id == _hash(session))) is not None


def forget(db: Database, before: float) -> int:
    """Deletes the rows of sessions that would have ended before this time anyway; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.ended_sessions).where(_ended.until < before)).rowcount


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
