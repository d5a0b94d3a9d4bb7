"""Writes of one process that would wait for each other share one commit, which costs more than the writes.

One that may be refused after it wrote something is in a savepoint of its own, so that it leaves no trace and disturbs
no other; what one has read under the transaction's locks the next need not read (`Transaction.known`), and what each
leaves for the end (`Transaction.at_end`) is written at once. Where the commit itself fails, none was kept, and each of
them fails. Only writes of one name, such as a tenant's, share a transaction: they lock the same rows in the same
order, so that two processes cannot wait for each other.
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


def together(db: Database, name: str, work: Callable[[Transaction], T], undoes: bool = True) -> T:
    """What `work` returns, once it is committed, alone or with others of this `name` that wait in this process.

    `undoes`: whether it may have written something when it raises, which is then undone; work that refuses before it
    writes needs no savepoint, and so two messages to the server fewer, while all others wait.
    Raises what `work` raises, of which nothing is kept then; DatabaseDownError as `Database.transaction`.
    """
    group = _entered(db, name)
    call = _Call(work, undoes)
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

    def __init__(self, work: Callable[[Transaction], T], undoes: bool) -> None:
        self.work, self.undoes, self.done = work, undoes, threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def run(self, tx: Transaction) -> None:
        """What the database itself refuses ends the whole transaction, but for a constraint."""
        try:
            part = tx.part()
            with tx.connection.begin_nested() if self.undoes else nullcontext():
                self.value = self.work(part)
            tx.take(part)
        except exc.IntegrityError as error:
            self.error = error
            if not self.undoes:
                raise
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
                        call.run(tx)
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
