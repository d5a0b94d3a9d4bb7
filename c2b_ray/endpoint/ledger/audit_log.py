"""The audit log: who did what to what, appended and never changed, each entry chained to the one before by its hash.

`hash` is the SHA-256 of the entry and of `previous`, the hash before it; the row `audit_head` holds the last. So what
changes, removes or inserts an entry, or cuts off the end, is found by `verify`. What it cannot find: entries that were
never appended; and a chain that someone with write access to the database computed anew from some entry on, head
included. Against the latter keep the head elsewhere from time to time (`head`, `c2b audit-log head`): `verify` says
whether the log still goes through it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import bindparam, func, select, update

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, record

BEGINNING = "0" * 64
"""The `previous` of the first entry."""
_BATCH = 1000
_HEAD_ROW = "the head of the audit log"


@dataclass(frozen=True)
class Entry:
    """`actor`: a key's id, or a word such as operator. `subject`: the id of what it was done to. `data`: JSON, without
    secrets."""

    actor: str
    action: str
    tenant_id: str | None = None
    subject: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Logged:
    """An entry as it stands in the log; `data` is JSON text."""

    seq: int
    at: float
    actor: str
    tenant_id: str | None
    action: str
    subject: str | None
    data: str
    previous: str
    hash: str


@dataclass(frozen=True)
class Head:
    """The end of the log: its last entry's number and hash; 0 and `BEGINNING` where it is empty."""

    seq: int
    hash: str


@dataclass(frozen=True)
class Break:
    """The first entry that does not follow from the one before it."""

    seq: int
    reason: str


_COLUMNS = [tables.audit_log.c[field.name] for field in fields(Logged)]

# Built once: to build a statement takes as long as to execute it.
_INSERT = tables.audit_log.insert()
_HEAD = select(tables.audit_head.c.seq, tables.audit_head.c.hash)
_LOCKED_HEAD = _HEAD.with_for_update()
_ADVANCE = update(tables.audit_head).values(seq=bindparam("to_seq"), hash=bindparam("to_hash"))
_INSERT_AND_ADVANCE = (
    tables.audit_log.insert()
    .values({field.name: bindparam(f"new_{field.name}") for field in fields(Logged)})
    .add_cte(_ADVANCE.cte("advanced"))
)
"""PostgreSQL's way: one message to the server fewer, while all others wait."""


def append(tx: Transaction, entry: Entry) -> Logged:
    """Part of the caller's transaction: what was done and its entry are kept together. Append last of all: until the
    transaction ends, every other one that appends waits. It is written at the transaction's end."""
    head = tx.known.get(_HEAD_ROW) or _locked_head(tx)
    data = json.dumps(entry.data, sort_keys=True, allow_nan=False, separators=(",", ":"))
    logged = Logged(
        head.seq + 1, tx.now, entry.actor, entry.tenant_id, entry.action, entry.subject, data, head.hash, ""
    )
    logged = replace(logged, hash=_digest(logged))
    tx.at_end(_write, logged)
    tx.known[_HEAD_ROW] = Head(logged.seq, logged.hash)
    return logged


def _write(tx: Transaction, entries: list[Logged]) -> None:
    last = entries[-1]
    head_row = {"to_seq": last.seq, "to_hash": last.hash}
    apart = entries[:-1] if tx.locks_rows else entries
    if apart:
        tx.execute(_INSERT, [vars(entry) for entry in apart])
    if tx.locks_rows:
        tx.execute(_INSERT_AND_ADVANCE, {f"new_{name}": value for name, value in vars(last).items()} | head_row)
    else:
        tx.execute(_ADVANCE, head_row)


def head(db: Database) -> Head:
    """What to keep elsewhere."""
    with db.reading() as tx:
        row = tx.execute(_HEAD).first()
    return Head(0, BEGINNING) if row is None else record(Head, row)


def page(db: Database, *, tenant_id: str | None = None, before: int | None = None, limit: int = 100) -> list[Logged]:
    """The latest entries first, those of one tenant or all; `before`: only those with a smaller `seq`."""
    statement = select(*_COLUMNS).order_by(tables.audit_log.c.seq.desc()).limit(limit)
    if tenant_id is not None:
        statement = statement.where(tables.audit_log.c.tenant_id == tenant_id)
    if before is not None:
        statement = statement.where(tables.audit_log.c.seq < before)
    with db.reading() as tx:
        return [record(Logged, row) for row in tx.execute(statement)]


def verify(db: Database, kept: Head | None = None) -> Break | None:
    """The first break, or None. `kept`: a head that was kept elsewhere, through which the log must go.

    Entries that are appended meanwhile are left for the next time.
    """
    end = head(db)
    previous, expected = BEGINNING, 1
    for logged in _entries(db, end.seq):
        if logged.seq != expected:
            return Break(expected, f"the entry is missing: {logged.seq} follows {expected - 1}")
        if logged.previous != previous:
            return Break(logged.seq, "it does not follow from the entry before it")
        if logged.hash != _digest(logged):
            return Break(logged.seq, "its content is not what its hash was made of")
        if kept is not None and logged.seq == kept.seq and logged.hash != kept.hash:
            return Break(logged.seq, "its hash is not the one that was kept: the log was written anew")
        previous, expected = logged.hash, expected + 1
    if expected <= end.seq:
        return Break(expected, f"the entry is missing: the log ends at {expected - 1}, its head says {end.seq}")
    if end.hash != previous:
        return Break(end.seq, "the head of the log is not its last entry")
    if _behind_the_head(db):
        return Break(end.seq + 1, "there is an entry after the head of the log")
    if kept is not None and kept.seq > end.seq:
        return Break(expected, f"the entry is missing: the log once went to {kept.seq}")
    return None


def _entries(db: Database, end: int) -> Iterator[Logged]:
    """In order, a batch at a time: the log may be larger than memory. Also those that claim a number below 1."""
    columns, last = tables.audit_log.c, None
    while True:
        statement = select(*_COLUMNS).where(columns.seq <= end).order_by(columns.seq).limit(_BATCH)
        with db.reading() as tx:
            rows = tx.execute(statement if last is None else statement.where(columns.seq > last)).all()
        yield from (record(Logged, row) for row in rows)
        if len(rows) < _BATCH:
            return
        last = rows[-1].seq


def _behind_the_head(db: Database) -> bool:
    """In one statement, which sees one moment: others append meanwhile."""
    end = select(tables.audit_head.c.seq).scalar_subquery()
    with db.reading() as tx:
        return (
            tx.scalar(select(tables.audit_log.c.seq).where(tables.audit_log.c.seq > func.coalesce(end, 0)).limit(1))
            is not None
        )


def _locked_head(tx: Transaction) -> Head:
    row = tx.execute(_LOCKED_HEAD if tx.locks_rows else _HEAD).first()
    assert row is not None, "a migration writes the row"
    return record(Head, row)


def _digest(logged: Logged) -> str:
    content = [value for name, value in vars(logged).items() if name != "hash"]
    text = json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
