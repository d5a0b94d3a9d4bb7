"""Combines writes of one process that would wait for each other into one transaction: a commit costs more than a write.

A write that may be refused after it has written something runs in its own savepoint, so that it leaves no trace and
does not disturb the others. What one write read under the transaction's locks the next need not read
(`Transaction.known`); rows registered for the end (`Transaction.at_end`) are written at once. If the commit fails,
nothing was kept and every write fails. Only writes with the same name, such as a tenant's, share a transaction: they
lock the same rows in the same order, so two processes cannot wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

from sqlalchemy import exc

from c2b_ray.endpoint.ledger.database import Database, Transaction
from c2b_ray.endpoint.ledger.outage import BUSY_SECONDS, DatabaseDownError

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
MOST = 32
_groups: dict[tuple[int, str], _Group] = {}
_lock = threading.Lock()


def together(db: Database, name: str, work: Callable[[Transaction], T], savepoint: bool = True) -> T:
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
                    raise DatabaseDownError("too many requests wait to write to the database", BUSY_SECONDS)
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
