"""Leases by name: one holder at a time, such as the dispatcher that leads. It knows no job.

The fence grows each time that another takes a lease. A lease has lapsed when its end has passed, or when it lies
further ahead than a lease can end: then the clock was set back.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, locked, record
from c2b_ray.endpoint.ledger.job import FencedError

AHEAD = 1.5
DISPATCHER = "dispatcher"
"""The lease of the dispatcher that leads."""
SLOT = "slot/"
"""Begins the names of the leases by which runners say that they have a slot."""
_leases = tables.leases.c


@dataclass(frozen=True)
class Lease:
    """`until`: when it lapses unless it is renewed, by the database's clock."""

    name: str
    owner: str
    until: float
    seconds: float
    fence: int


_COLUMNS = [_leases[name] for name in ("name", "owner", "until", "seconds", "fence")]


def take(db: Database, name: str, owner: str, seconds: float) -> Lease | None:
    """The lease, or None while another holds it. Whoever holds it already renews it, with the same fence."""
    with db.transaction() as tx:
        now = tx.now
        values = {"name": name, "owner": owner, "until": now + seconds, "seconds": seconds, "fence": 1}
        insert = postgresql.insert(tables.leases) if tx.locks_rows else sqlite.insert(tables.leases)
        free = or_(_leases.owner == owner, _leases.until <= now, _leases.until > now + AHEAD * _leases.seconds)
        changed = {"owner": owner, "until": now + seconds, "seconds": seconds}
        fence = _leases.fence + case((_leases.owner == owner, 0), else_=1)
        taken = insert.values(values).on_conflict_do_update(
            index_elements=["name"], set_=changed | {"fence": fence}, where=free
        )
        row = tx.execute(taken.returning(*_COLUMNS)).first()
    return None if row is None else record(Lease, row)


def renew(db: Database, lease: Lease) -> Lease:
    """FencedError where another has taken it."""
    with db.transaction() as tx:
        changes = update(tables.leases).where(*_same(lease)).values(until=tx.now + lease.seconds)
        row = tx.execute(changes.returning(*_COLUMNS)).first()
    if row is None:
        raise FencedError(f"the lease {lease.name!r} is another's now")
    return record(Lease, row)


def give_back(db: Database, lease: Lease) -> None:
    """Lets another take it at once; without effect where another has it. Its fence is not used again."""
    with db.transaction() as tx:
        tx.execute(update(tables.leases).where(*_same(lease)).values(owner="", until=0.0))


def holder(db: Database, name: str) -> Lease | None:
    """Who holds it; None where nobody does."""
    return next((lease for lease in live(db, name) if lease.name == name), None)


def live(db: Database, prefix: str) -> list[Lease]:
    """Those that are held whose names begin so."""
    with db.reading() as tx:
        now = db.now(tx.connection)
        ahead = _leases.until <= now + AHEAD * _leases.seconds
        named = _leases.name.startswith(prefix, autoescape=True)
        return [record(Lease, row) for row in tx.execute(select(*_COLUMNS).where(named, _leases.until > now, ahead))]


def forget(db: Database, prefix: str, seconds: float) -> None:
    """Deletes those that lapsed at least `seconds` ago and whose names begin so, for names that are not used again."""
    with db.transaction() as tx:
        named = _leases.name.startswith(prefix, autoescape=True)
        tx.execute(delete(tables.leases).where(named, _leases.until < tx.now - seconds))


def holds(tx: Transaction, lease: Lease) -> bool:
    """Whether it is still held, until the end of this transaction."""
    where = *_same(lease), _leases.until > tx.now
    return tx.execute(locked(tx, select(_leases.name).where(*where))).first() is not None


def _same(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return _leases.name == lease.name, _leases.owner == lease.owner, _leases.fence == lease.fence
