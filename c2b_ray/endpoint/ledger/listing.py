"""Lists of jobs for the web pages: filtered, sorted by a column, one page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, record
from c2b_ray.endpoint.ledger.job import COLUMNS, Job

_jobs = tables.jobs.c
ORDERS: Mapping[str, ColumnElement[Any]] = {
    "created": _jobs.created,
    "name": func.coalesce(_jobs.name, ""),
    "kind": _jobs.kind,
    "state": _jobs.state,
    "images": _jobs.images,
    "ended": func.coalesce(_jobs.ended, 0.0),
}


@dataclass(frozen=True)
class Look:
    """Filters and order of a list. An empty text means any. `name`: part of the name, in any case."""

    state: str = ""
    kind: str = ""
    name: str = ""
    order: str = "created"
    descending: bool = True


@dataclass(frozen=True)
class Listing:
    """A page of jobs. `next`: the cursor of the next page; None at the end."""

    items: list[Job]
    next: tuple[Any, str] | None


def listing(
    db: Database, tenant_id: str, look: Look, cursor: tuple[Any, str] | None = None, limit: int = 50
) -> Listing:
    """Returns a page of one tenant's jobs. `look.order` is a key of `ORDERS`; jobs with equal values are sorted by
    id."""
    by = ORDERS[look.order]
    statement = select(*COLUMNS, by.label("by")).where(_jobs.tenant_id == tenant_id, *_conditions(look))
    if cursor is not None:
        value, job_id = cursor
        later = (by < value, _jobs.id < job_id) if look.descending else (by > value, _jobs.id > job_id)
        statement = statement.where(or_(later[0], and_(by == value, later[1])))
    ordered = (by.desc(), _jobs.id.desc()) if look.descending else (by, _jobs.id)
    with db.reading() as tx:
        rows = tx.execute(statement.order_by(*ordered).limit(limit + 1)).all()
    items = [record(Job, row[:-1]) for row in rows[:limit]]
    return Listing(items, (rows[limit - 1][-1], items[-1].id) if len(rows) > limit else None)


def _conditions(look: Look) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_jobs.deleted.is_(None)]
    if look.state:
        conditions.append(_jobs.state == look.state)
    if look.kind:
        conditions.append(_jobs.kind == look.kind)
    if look.name:
        conditions.append(func.lower(_jobs.name).contains(look.name.lower(), autoescape=True))
    return conditions
