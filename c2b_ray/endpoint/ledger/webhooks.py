"""Events of jobs, and the webhooks of tenants with their pending deliveries. It sends nothing.

A delivery is written in the transaction that ends its job, so a crash loses none. A sender takes due deliveries under a
lease, so two senders send the same one only if the first dies before it records the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import and_, case, delete, func, or_, select, update

from c2b_ray.endpoint.ledger import audit_log, tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, is_id, locked, new_id, record
from c2b_ray.errors import InputError

_webhooks, _deliveries = tables.webhooks.c, tables.deliveries.c
SENDING_SECONDS = 60.0
FIRST_S, FACTOR, LONGEST_S = 10.0, 4.0, 6 * 3600.0
ATTEMPTS = 12
"""The most attempts at a delivery, spread over 17 to 34 hours."""
_SLACK_S = 5.0
MOST = 20
"""The most webhooks of a tenant."""


class TooManyError(InputError):
    """The tenant has as many webhooks as it may have."""


@dataclass(frozen=True)
class Webhook:
    """A webhook. `secret` signs its deliveries."""

    id: str
    tenant_id: str
    url: str
    secret: str
    created: float


@dataclass(frozen=True)
class Delivery:
    """A delivery. `state`: pending, delivered or given_up. `event_id`: the job's event that it reports."""

    id: str
    webhook_id: str
    job_id: str
    event_id: int
    state: str
    attempts: int
    next_at: float
    last_error: str | None


_WEBHOOK = [_webhooks[field.name] for field in fields(Webhook)]
_DELIVERY = [_deliveries[field.name] for field in fields(Delivery)]


def longest_wait(attempts: int) -> float:
    """Returns the most seconds until the next attempt after so many."""
    return min(LONGEST_S, FIRST_S * FACTOR ** (attempts - 1)) if attempts else 0.0


_WAITS = case(
    {tried: max(SENDING_SECONDS, longest_wait(tried)) for tried in range(ATTEMPTS)},
    value=_deliveries.attempts,
    else_=LONGEST_S,
)
"""The furthest that the time of the next attempt can lie ahead. A later one was written before the clock was set back:
it is due now."""


def create(db: Database, tenant_id: str, url: str, secret: str, actor: str = "operator") -> Webhook:
    """Adds a webhook. Raises TooManyError if the tenant has `MOST`."""
    with db.transaction() as tx:
        tx.execute(locked(tx, select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id)))
        count = select(func.count()).select_from(tables.webhooks).where(_webhooks.tenant_id == tenant_id)
        if tx.scalar(count) >= MOST:
            raise TooManyError(f"a tenant has at most {MOST} webhooks; delete one")
        webhook = Webhook(new_id("hook"), tenant_id, url, secret, tx.now)
        tx.execute(tables.webhooks.insert().values(vars(webhook)))
        audit_log.append(tx, audit_log.Entry(actor, "webhook.create", tenant_id, webhook.id))
    return webhook


def listed(db: Database, tenant_id: str) -> list[Webhook]:
    statement = select(*_WEBHOOK).where(_webhooks.tenant_id == tenant_id).order_by(_webhooks.created, _webhooks.id)
    with db.reading() as tx:
        return [record(Webhook, row) for row in tx.execute(statement)]


def get(db: Database, tenant_id: str | None, webhook_id: str) -> Webhook | None:
    """Returns a webhook; None if the tenant has no such webhook. `tenant_id` None: any tenant, for the sender."""
    if not is_id(webhook_id):
        return None
    with db.reading() as tx:
        row = tx.execute(select(*_WEBHOOK).where(_webhooks.id == webhook_id)).first()
    return None if row is None or tenant_id not in (None, row.tenant_id) else record(Webhook, row)


def remove(db: Database, tenant_id: str, webhook_id: str, actor: str = "operator") -> bool:
    """Deletes a webhook and its deliveries; returns whether it existed."""
    if not is_id(webhook_id):
        return False
    with db.transaction() as tx:
        conditions = _webhooks.id == webhook_id, _webhooks.tenant_id == tenant_id
        removed = bool(tx.execute(delete(tables.webhooks).where(*conditions)).rowcount)
        if removed:
            audit_log.append(tx, audit_log.Entry(actor, "webhook.remove", tenant_id, webhook_id))
    return removed


def announce(tx: Transaction, tenant_id: str, job_id: str, event_id: int) -> None:
    """Adds a delivery for each webhook of the tenant, in the transaction that ended the job."""
    statement = select(_webhooks.id).where(_webhooks.tenant_id == tenant_id)
    if tx.locks_rows:  # a webhook removed before the commit would take its delivery with it
        statement = statement.with_for_update(read=True, key_share=True)
    hooks = tx.execute(statement).scalars().all()
    rows = [
        {"id": new_id("delivery"), "webhook_id": webhook_id, "job_id": job_id, "event_id": event_id, "state": "pending"}
        | {"attempts": 0, "next_at": tx.now}
        for webhook_id in hooks
    ]
    if rows:
        tx.execute(tables.deliveries.insert(), rows)


def due(db: Database, limit: int = 20) -> list[tuple[Delivery, Webhook]]:
    """Returns the deliveries to send now, taking tenants in turn, so that slow receivers delay only their own tenant.

    If this sender dies, another gets them after `SENDING_SECONDS`.
    """
    with db.transaction() as tx:
        now = or_(_deliveries.next_at <= tx.now, _deliveries.next_at > tx.now + _WAITS + _SLACK_S)
        pending = and_(_deliveries.state == "pending", now)
        rank = func.row_number().over(partition_by=_webhooks.tenant_id, order_by=_deliveries.next_at).label("turn")
        ranked = select(_deliveries.id, rank).join(tables.webhooks, _webhooks.id == _deliveries.webhook_id)
        turns = ranked.where(pending).subquery()
        first = select(_deliveries.id).join(turns, turns.c.id == _deliveries.id).where(pending)
        first = first.order_by(turns.c.turn, _deliveries.next_at).limit(limit)
        if tx.locks_rows:
            first = first.with_for_update(of=tables.deliveries, skip_locked=True)
        ids = tx.execute(first).scalars().all()
        statement = update(tables.deliveries).where(_deliveries.id.in_(ids)).values(next_at=tx.now + SENDING_SECONDS)
        claimed = [record(Delivery, row) for row in tx.execute(statement.returning(*_DELIVERY))]
        hooks = {
            row.id: record(Webhook, row)
            for row in tx.execute(
                select(*_WEBHOOK).where(_webhooks.id.in_({delivery.webhook_id for delivery in claimed}))
            )
        }
    return [(delivery, hooks[delivery.webhook_id]) for delivery in claimed]


def delivered(db: Database, delivery_id: str) -> None:
    with db.transaction() as tx:
        values = {"state": "delivered", "last_error": None, "attempts": _deliveries.attempts + 1}
        tx.execute(update(tables.deliveries).where(_deliveries.id == delivery_id).values(values))


def failed(db: Database, delivery_id: str, error: str, retry_in: float | None) -> None:
    """Records a failed attempt. `retry_in`: seconds until the next one; None gives up."""
    with db.transaction() as tx:
        values: dict[str, Any] = {"attempts": _deliveries.attempts + 1, "last_error": error[:500]}
        values |= {"state": "given_up"} if retry_in is None else {"next_at": tx.now + min(retry_in, LONGEST_S)}
        conditions = _deliveries.id == delivery_id, _deliveries.state == "pending"
        tx.execute(update(tables.deliveries).where(*conditions).values(values))


def forget(db: Database, before: float) -> int:
    """Deletes deliveries that were delivered or given up before this time; returns how many."""
    with db.transaction() as tx:
        conditions = _deliveries.state != "pending", _deliveries.next_at < before
        return tx.execute(delete(tables.deliveries).where(*conditions)).rowcount


def deliveries(db: Database, tenant_id: str, webhook_id: str, limit: int = 50) -> list[Delivery]:
    """Returns the latest deliveries of a tenant's webhook, for its owner."""
    conditions = _deliveries.webhook_id == webhook_id, _webhooks.tenant_id == tenant_id
    statement = select(*_DELIVERY).join(tables.webhooks, _webhooks.id == _deliveries.webhook_id).where(*conditions)
    with db.reading() as tx:
        return [
            record(Delivery, row) for row in tx.execute(statement.order_by(_deliveries.next_at.desc()).limit(limit))
        ]


# Events of jobs. They are kept, so that a client that lost the connection resumes after the last one it saw.


@dataclass(frozen=True)
class Event:
    """An event of a job. `id` grows from event to event, and is never used again."""

    id: int
    job_id: str
    kind: str
    data: dict[str, Any]
    at: float


_INSERT_EVENT = tables.events.insert()
_INSERT_ONE_EVENT = _INSERT_EVENT.returning(tables.events.c.id)
_EVENT_COLUMNS = [tables.events.c[field.name] for field in fields(Event)]


def add_event(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> int:
    """Adds an event in the caller's transaction and returns its id. The transaction must have changed or locked the
    job's row.

    PostgreSQL assigns ids before the commit. Without the lock, an event with a smaller id could be committed after a
    larger one was read, and the reader would miss it.
    """
    row = {"job_id": job_id, "kind": kind, "data": data, "at": tx.now}
    return int(tx.execute(_INSERT_ONE_EVENT, row).scalar_one())


def add_event_at_end(tx: Transaction, job_id: str, kind: str, data: dict[str, Any]) -> None:
    """Like `add_event`, but writes the event at the end of the transaction, with others, and returns no id."""
    tx.at_end(_write_events, {"job_id": job_id, "kind": kind, "data": data, "at": tx.now})


def _write_events(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    tx.execute(_INSERT_EVENT, rows)


def events_after(db: Database, job_id: str, last_id: int = 0, limit: int = 500) -> list[Event]:
    """Returns the events of a job after `last_id`, in order. The caller has checked that the job is its tenant's."""
    columns = tables.events.c
    conditions = columns.job_id == job_id, columns.id > last_id
    with db.reading() as tx:
        rows = tx.execute(select(*_EVENT_COLUMNS).where(*conditions).order_by(columns.id).limit(limit))
        return [record(Event, row) for row in rows]


def find_event(db: Database, job_id: str, event_id: int) -> tuple[bool, int]:
    """Returns whether `event_id` is an event of the job, and the id of the job's latest event; 0 if it has none."""
    columns = tables.events.c
    is_it = func.max(case((columns.id == event_id, 1), else_=0))
    with db.reading() as tx:
        row: Any = tx.execute(select(is_it, func.max(columns.id)).where(columns.job_id == job_id)).one()
    return bool(row[0]), int(row[1] or 0)


def forget_events(db: Database, ended_before: float) -> int:
    """Deletes the events of jobs that ended before this time; returns how many."""
    jobs = tables.jobs.c
    ended_jobs = select(jobs.id).where(jobs.ended < ended_before)
    with db.transaction() as tx:
        return tx.execute(delete(tables.events).where(tables.events.c.job_id.in_(ended_jobs))).rowcount
