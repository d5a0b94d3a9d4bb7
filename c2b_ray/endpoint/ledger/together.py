"""Writes of one process that wait for each other anyway, kept by one commit: a commit costs more than what it keeps.

Each is in a savepoint of its own, so that one that is refused leaves no trace and disturbs no other; where the commit
itself fails, none was kept, and each of them is told. Only writes of one name, such as a tenant's, share a transaction:
they lock the same rows in the same order, so that two processes cannot wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sqlalchemy import exc

from c2b_ray.endpoint.ledger.database import Database, Transaction
from c2b_ray.endpoint.ledger.outage import BUSY_SECONDS, DatabaseDownError

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
MOST = 32
_groups: dict[tuple[int, str], _Group] = {}
_lock = threading.Lock()


def together(db: Database, name: str, work: Callable[[Transaction], T]) -> T:
    """What `work` returns, once it is committed, alone or with others of this `name` that wait in this process.

    Raises what `work` raises, of which nothing is kept then; DatabaseDownError as `Database.transaction`.
    """
    group = _entered(db, name)
    call = _Call(work)
    try:
        group.waiting.append(call)
        if not group.leading.acquire(timeout=PATIENCE_SECONDS):
            with group.taking:
                if call in group.waiting:
                    group.waiting.remove(call)
                    raise DatabaseDownError("too many wait to write", BUSY_SECONDS)
            call.done.wait()
            return call.result()
        try:
            while not call.done.is_set():  # more may wait than one transaction takes
                group.run(db)
        finally:
            group.leading.release()
        return call.result()
    finally:
        _left(db, name, group)


class _Call(Generic[T]):
    """One write, and what came of it."""

    def __init__(self, work: Callable[[Transaction], T]) -> None:
        self.work, self.done = work, threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def run(self, tx: Transaction) -> None:
        """In a savepoint. What the database itself refuses ends the whole transaction, but for a constraint."""
        try:
            with tx.connection.begin_nested():
                self.value = self.work(tx)
        except exc.IntegrityError as error:
            self.error = error
        except exc.DBAPIError:
            raise
        except Exception as error:
            self.error = error


class _Group:
    """Writes of one name. Who holds `leading` does those of all who wait."""

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
                        call.run(Transaction(db, tx.connection))
        except BaseException as error:
            for call in calls:
                call.error = call.error or error
        finally:
            for call in calls:
                call.done.set()


def _entered(db: Database, name: str) -> _Group:
    with _lock:
        group = _groups.setdefault((id(db), name), _Group())
        group.inside += 1
        return group


def _left(db: Database, name: str, group: _Group) -> None:
    with _lock:
        group.inside -= 1
        if not group.inside:
            del _groups[(id(db), name)]
