"""The audit log: who did what to what. Entries are appended, never changed, and chained by their hashes.

The `hash` of an entry is the SHA-256 of the entry, which holds the hash of the entry before it (`previous`). The row
`audit_head` holds the last hash. `verify` therefore detects any entry that was changed, removed or inserted, and a log
whose end was cut off. It cannot detect entries that were never appended, or a chain that someone with write access to
the database recomputed from some entry on, head included. To detect the latter, keep the head elsewhere from time to
time (`head`, `c2b audit-log head`): `verify` then checks that the log still contains it.
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
    """Something that was done. `actor`: a key's id, or a word such as operator. `subject`: the id of the object it was
    done to. `data`: JSON, without secrets."""

    actor: str
    action: str
    tenant_id: str | None = None
    subject: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Logged:
    """An entry in the log. `data` is JSON text."""

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
    """The number and hash of the log's last entry; 0 and `BEGINNING` for an empty log."""

    seq: int
    hash: str


@dataclass(frozen=True)
class ChainBreak:
    """The first entry that breaks the chain, and how."""

    seq: int
    reason: str


_COLUMNS = [tables.audit_log.c[field.name] for field in fields(Logged)]

# Built once, because building a statement takes as long as executing it.
_INSERT = tables.audit_log.insert()
_HEAD = select(tables.audit_head.c.seq, tables.audit_head.c.hash)
_LOCKED_HEAD = _HEAD.with_for_update()
_ADVANCE = update(tables.audit_head).values(seq=bindparam("to_seq"), hash=bindparam("to_hash"))
_INSERT_AND_ADVANCE = (
    tables.audit_log.insert()
    .values({field.name: bindparam(f"new_{field.name}") for field in fields(Logged)})
    .add_cte(_ADVANCE.cte("advanced"))
)
"""For PostgreSQL: one statement saves a message to the server while all other writers wait."""


def append(tx: Transaction, entry: Entry) -> Logged:
    """Appends an entry, in the caller's transaction: an action and its entry are committed together.

    Call it last: until the transaction ends, every other transaction that appends waits. The row is written at the end
    of the transaction.
    """
    head = tx.known.get(_HEAD_ROW) or record(Head, tx.execute(_LOCKED_HEAD if tx.locks_rows else _HEAD).one())
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
    unlocked = entries[:-1] if tx.locks_rows else entries
    if unlocked:
        tx.execute(_INSERT, [vars(entry) for entry in unlocked])
    if tx.locks_rows:
        tx.execute(_INSERT_AND_ADVANCE, {f"new_{name}": value for name, value in vars(last).items()} | head_row)
    else:
        tx.execute(_ADVANCE, head_row)


def head(db: Database) -> Head:
    """Returns the head of the log, for the operator to keep elsewhere."""
    with db.reading() as tx:
        row = tx.execute(_HEAD).first()
    return Head(0, BEGINNING) if row is None else record(Head, row)


def page(db: Database, *, tenant_id: str | None = None, before: int | None = None, limit: int = 100) -> list[Logged]:
    """Returns the latest entries first, of one tenant or of all; with `before`, only those with a smaller `seq`."""
    statement = select(*_COLUMNS).order_by(tables.audit_log.c.seq.desc()).limit(limit)
    if tenant_id is not None:
        statement = statement.where(tables.audit_log.c.tenant_id == tenant_id)
    if before is not None:
        statement = statement.where(tables.audit_log.c.seq < before)
    with db.reading() as tx:
        return [record(Logged, row) for row in tx.execute(statement)]


def verify(db: Database, known_head: Head | None = None) -> ChainBreak | None:
    """Returns the first break of the chain; None for an intact log.

    `known_head`: a head that was kept elsewhere and that the log must contain. Entries appended during the check are
    not checked.
    """
    end = head(db)
    previous, expected = BEGINNING, 1
    for logged in _entries(db, end.seq):
        if logged.seq != expected:
            return ChainBreak(expected, f"the entry is missing: {logged.seq} follows {expected - 1}")
        if logged.previous != previous:
            return ChainBreak(logged.seq, "its `previous` is not the hash of the entry before it")
        if logged.hash != _digest(logged):
            return ChainBreak(logged.seq, "its content does not match its hash")
        if known_head is not None and logged.seq == known_head.seq and logged.hash != known_head.hash:
            return ChainBreak(logged.seq, "its hash differs from the one that was kept: the log was rewritten")
        previous, expected = logged.hash, expected + 1
    if expected <= end.seq:
        return ChainBreak(expected, f"the entry is missing: the log ends at {expected - 1}, its head says {end.seq}")
    if end.hash != previous:
        return ChainBreak(end.seq, "the head of the log is not its last entry")
    if _has_entries_beyond_head(db):
        return ChainBreak(end.seq + 1, "there is an entry after the head of the log")
    if known_head is not None and known_head.seq > end.seq:
        return ChainBreak(expected, f"the entry is missing: the log once went to {known_head.seq}")
    return None


def _entries(db: Database, end: int) -> Iterator[Logged]:
    """Yields the entries in order, read in batches because the log may be larger than memory.

    A forged entry may have a number below 1; those come too.
    """
    columns, last = tables.audit_log.c, None
    while True:
        statement = select(*_COLUMNS).where(columns.seq <= end).order_by(columns.seq).limit(_BATCH)
        with db.reading() as tx:
            rows = tx.execute(statement if last is None else statement.where(columns.seq > last)).all()
        yield from (record(Logged, row) for row in rows)
        if len(rows) < _BATCH:
            return
        last = rows[-1].seq


def _has_entries_beyond_head(db: Database) -> bool:
    """Returns whether an entry has a number beyond the head's.

    One statement reads both, since others append meanwhile.
    """
    end = select(tables.audit_head.c.seq).scalar_subquery()
    with db.reading() as tx:
        return (
            tx.scalar(select(tables.audit_log.c.seq).where(tables.audit_log.c.seq > func.coalesce(end, 0)).limit(1))
            is not None
        )


def _digest(logged: Logged) -> str:
    content = [value for name, value in vars(logged).items() if name != "hash"]
    text = json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
