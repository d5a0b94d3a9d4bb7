"""Connections to the ledger's database, its transactions and its clock, in SQLite or PostgreSQL.

It knows no table. What a lost connection, a lock that is not let go, or a full disk says in either database becomes a
`DatabaseDownError`: nothing of the transaction was kept, what was committed before it stays.

SQLite is for processes of one host. A write transaction takes the write lock at its beginning (BEGIN IMMEDIATE), so
that none fails half way for another's; threads of one process queue for it in the process. Each commit is synced to
disk. PostgreSQL runs at READ COMMITTED: a transaction that must not overtake another locks a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Double,
    Engine,
    Executable,
    cast,
    func,
    select,
)

from c2b_ray.endpoint.ledger.engines import BUSY_SECONDS, postgres_engine, sqlite_engine
from c2b_ray.endpoint.ledger.outage import DOWN_SECONDS, DatabaseDownError, named
from c2b_ray.errors import ConfigError

__all__ = ["Database", "DatabaseDownError", "Transaction"]

T = TypeVar("T")
_SQLITE_CLOCK: ColumnElement[float] = func.c2b_clock(type_=Double())
_POSTGRES_CLOCK: ColumnElement[float] = cast(func.extract("epoch", func.clock_timestamp()), Double())


Writer = Callable[["Transaction", list[Any]], object]
"""What writes rows, all at once."""


class Transaction:
    """Statements that are kept together or not at all.

    `known`: what writes of one transaction have read under its locks, or written, and need not read again.
    """

    def __init__(self, database: Database, connection: Connection, known: dict[str, Any] | None = None) -> None:
        self.known = {} if known is None else known
        self._database = database
        self.connection = connection
        self._now: float | None = None
        self._after: list[Callable[[], object]] = []
        self._rows: dict[Writer, list[Any]] = {}

    @property
    def now(self) -> float:
        """Seconds since 1970 by the database's clock, read once."""
        if self._now is None:
            self._now = self._database.now(self.connection)
        return self._now

    @now.setter
    def now(self, seconds: float) -> None:
        """From a statement that read `clock()` besides."""
        self._now = seconds

    def clock(self) -> ColumnElement[float]:
        """As the database's."""
        return self._database.clock()

    @property
    def locks_rows(self) -> bool:
        """Whether rows can be locked (PostgreSQL); in SQLite the whole database is, from the first statement."""
        return not self._database.is_sqlite

    def after_commit(self, call: Callable[[], object]) -> None:
        """`call` is called once what this transaction changed is kept, and never otherwise."""
        self._after.append(call)

    def kept(self) -> None:
        for call in self._after:
            call()

    def at_end(self, write: Writer, row: Any) -> None:
        """`row` is written right before the commit, by `write` and with all rows of this transaction that it writes.
        Until then no statement sees it. Writers are called in the order of their first rows."""
        self._rows.setdefault(write, []).append(row)

    def write_rows(self) -> None:
        for write, rows in self._rows.items():
            write(self, rows)
        self._rows = {}

    def part(self) -> Transaction:
        """For one of several writes, each of which may fail by itself: what it leaves for later joins this transaction
        only by `take`."""
        return Transaction(self._database, self.connection, dict(self.known))

    def take(self, part: Transaction) -> None:
        self.known.update(part.known)
        self._after += part._after
        for write, rows in part._rows.items():
            self._rows.setdefault(write, []).extend(rows)

    def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[Any]:
        result = self.connection.execute(statement, parameters)
        assert isinstance(result, CursorResult)
        return result

    def scalar(self, statement: Executable) -> Any:
        return self.connection.scalar(statement)


class Database:
    """The database at a URL, such as sqlite:////srv/c2b/ledger.db or postgresql://user@host/name.

    Threads share it; a process that was forked makes its own. It connects when it is first used. ConfigError where the
    URL names no such database.
    """

    def __init__(self, url: str, connections: int = 20) -> None:
        """`connections`: at most so many at once; who finds none free waits `BUSY_SECONDS` for one."""
        self.is_sqlite = url.startswith("sqlite:")
        self._lock = threading.Lock() if self.is_sqlite else None
        if self.is_sqlite:
            self.engine = sqlite_engine(url, connections)
        elif url.startswith(("postgresql://", "postgresql+psycopg://")):
            self.engine = postgres_engine(url, connections)
        else:
            raise ConfigError("database", "expected sqlite:///PATH or postgresql://USER@HOST/NAME")
        # In SQLite a read is one, without a lock; in PostgreSQL each statement of a read is a transaction of its own.
        read_only = {} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._reads: Engine = self.engine.execution_options(**read_only)
        self._writes: Engine = self.engine.execution_options(c2b_write=True)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commits at the end, rolls back where an error leaves it. DatabaseDownError: nothing of it was kept, unless
        the connection was lost during the commit itself, whose outcome is then unknown."""
        with named(self.is_sqlite), self._turn(), self._writes.begin() as connection:
            transaction = Transaction(self, connection)
            yield transaction
            transaction.write_rows()
        transaction.kept()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """For statements that change nothing."""
        with named(self.is_sqlite), self._reads.connect() as connection:
            yield Transaction(self, connection)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """As `reading`; all statements see the same moment, however long they take."""
        wanted: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with named(self.is_sqlite), self.engine.execution_options(**wanted).connect() as connection:
            if not self.is_sqlite:
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
            yield Transaction(self, connection)

    def clock(self) -> ColumnElement[float]:
        """Seconds since 1970 as part of a statement, by the clock that every process of the ledger shares.

        That of PostgreSQL's server; SQLite is part of this process, on the one host.
        """
        return _SQLITE_CLOCK if self.is_sqlite else _POSTGRES_CLOCK

    def now(self, connection: Connection) -> float:
        """`clock()` as a number."""
        value = connection.scalar(select(self.clock()))
        assert value is not None
        return float(value)

    def ping(self) -> None:
        """DatabaseDownError where the database does not answer."""
        with self.reading() as tx:
            tx.scalar(select(1))

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One writer of this process at a time: SQLite's own waiting is by polling, and starves who waits longest."""
        if self._lock is None:
            yield
            return
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise DatabaseDownError(f"the database was locked for {BUSY_SECONDS:g} s", DOWN_SECONDS)
        try:
            yield
        finally:
            self._lock.release()


def locked(transaction: Transaction, statement: Any) -> Any:
    """The SELECT with its rows locked against who else would lock them; inserts that refer to them go on."""
    return statement.with_for_update(key_share=True) if transaction.locks_rows else statement


def record(kind: Callable[..., T], row: Iterable[Any]) -> T:
    """A dataclass from a row whose columns are its fields, in their order."""
    return kind(*row)
