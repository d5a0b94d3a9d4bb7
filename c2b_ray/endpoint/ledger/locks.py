"""Leases by name: one holder at a time, such as the dispatcher that leads. It knows no job.

The fence grows each time another holder takes the lease. A lease has lapsed when its end has passed, or when its end
lies further ahead than a lease can end, which means that the clock was set back. After a clock was set, nobody takes a
lease from its holder before that had the time to renew it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, and_, case, delete, exc, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import RETRY_SECONDS, Database, DatabaseDownError, Transaction, locked, record
from c2b_ray.endpoint.ledger.job import FencedError

AHEAD = 1.5
DISPATCHER = "dispatcher"
"""The lease of the dispatcher that leads."""
SLOT = "slot/"
"""Prefix of the names of leases that announce the slots of runners."""
_leases = tables.leases.c


@dataclass(frozen=True)
class Lease:
    """A lease. `until`: when it lapses unless it is renewed, by the database's clock."""

    name: str
    owner: str
    until: float
    seconds: float
    fence: int


_COLUMNS = [_leases[name] for name in ("name", "owner", "until", "seconds", "fence")]


def take(db: Database, name: str, owner: str, seconds: float) -> Lease | None:
    """Takes the lease and returns it; None while another holds it. The current holder renews it, with the same
    fence."""
    with db.transaction() as tx:
        now = tx.now
        values = {"name": name, "owner": owner, "until": now + seconds, "seconds": seconds, "fence": 1}
        insert = postgresql.insert(tables.leases) if tx.locks_rows else sqlite.insert(tables.leases)
        has_ended = or_(_leases.until <= now, _leases.until > now + AHEAD * _leases.seconds)
        free = or_(_leases.owner == owner, _leases.owner == "", and_(has_ended, _leases.seconds <= tx.steady_s))
        changed = {"owner": owner, "until": now + seconds, "seconds": seconds}
        fence = _leases.fence + case((_leases.owner == owner, 0), else_=1)
        statement = insert.values(values).on_conflict_do_update(
            index_elements=["name"], set_=changed | {"fence": fence}, where=free
        )
        row = tx.execute(statement.returning(*_COLUMNS)).first()
    return None if row is None else record(Lease, row)


def renew(db: Database, lease: Lease) -> Lease:
    """Renews the lease. Raises FencedError if another holder has taken it."""
    with db.transaction() as tx:
        changes = update(tables.leases).where(*_same(lease)).values(until=tx.now + lease.seconds)
        row = tx.execute(changes.returning(*_COLUMNS)).first()
    if row is None:
        raise FencedError(f"the lease {lease.name!r} has another holder now")
    return record(Lease, row)


def give_back(db: Database, lease: Lease) -> None:
    """Ends the lease, so that another can take it at once. It has no effect if another has it. Its fence is not used
    again."""
    with db.transaction() as tx:
        tx.execute(update(tables.leases).where(*_same(lease)).values(owner="", until=0.0))


def holder(db: Database, name: str) -> Lease | None:
    """Returns the current lease of this name; None if nobody holds it."""
    return next((lease for lease in live(db, name) if lease.name == name), None)


def live(db: Database, prefix: str) -> list[Lease]:
    """Returns the leases that are held and whose names begin with the prefix."""
    with db.reading() as tx:
        now = db.now(tx.connection)
        is_plausible = _leases.until <= now + AHEAD * _leases.seconds
        has_prefix = _leases.name.startswith(prefix, autoescape=True)
        return [
            record(Lease, row)
            for row in tx.execute(select(*_COLUMNS).where(has_prefix, _leases.until > now, is_plausible))
        ]


def forget(db: Database, prefix: str, seconds: float) -> None:
    """Deletes the leases that lapsed at least `seconds` ago and whose names begin with the prefix. For names that are
    not used again."""
    with db.transaction() as tx:
        has_prefix = _leases.name.startswith(prefix, autoescape=True)
        tx.execute(delete(tables.leases).where(has_prefix, _leases.until < tx.now - seconds))


def holds(tx: Transaction, lease: Lease) -> bool:
    """Returns whether the lease is still held, and keeps it so until the transaction ends."""
    conditions = *_same(lease), _leases.until > tx.now
    return tx.execute(locked(tx, select(_leases.name).where(*conditions))).first() is not None


def _same(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return _leases.name == lease.name, _leases.owner == lease.owner, _leases.fence == lease.fence


# Combines writes of one process that would wait for each other into one transaction: a commit costs more than a
# write.


T = TypeVar("T")
PATIENCE_SECONDS = 10.0
MOST = 32
_groups: dict[tuple[int, str], _Group] = {}
_lock = threading.Lock()


def commit_together(db: Database, name: str, work: Callable[[Transaction], T], savepoint: bool = True) -> T:
    """Runs `work` in a transaction, alone or with others of this `name` that wait in this process; returns its result.

    `savepoint`: True where `work` may have written something when it raises, which is then rolled back. Work that
    refuses before it writes needs no savepoint, which saves two messages to the server while all others wait.

    Raises what `work` raises, after undoing its writes, and DatabaseDownError like `Database.transaction`.
    """
    group = _join(db, name)
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
        _leave(db, name, group)


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
            calls, self.waiting[:MOST] = self.waiting[:MOST], []
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


def _join(db: Database, name: str) -> _Group:
    with _lock:
        group = _groups.setdefault((id(db), name), _Group())
        group.inside += 1
        return group


def _leave(db: Database, name: str, group: _Group) -> None:
    with _lock:
        group.inside -= 1
        if not group.inside:
            del _groups[(id(db), name)]
