"""Connections to the ledger's database, its transactions and its clock, in SQLite or PostgreSQL.

It knows no table. A lost connection, a lock that is not released and a full disk become a `DatabaseDownError` in both
databases: nothing of the transaction was kept, and earlier commits stay.

SQLite serves processes of one host. A write transaction takes the write lock at its start (BEGIN IMMEDIATE), so that
none fails half way because of another; threads of one process queue for the lock in the process. Each commit is synced
to disk. PostgreSQL runs at READ COMMITTED: transactions that must run one after the other lock a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
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

from c2b_ray.endpoint.clocks import Watch
from c2b_ray.endpoint.ledger.alone import WAIT_SECONDS, Alone, AloneOnHost, AloneOnServer
from c2b_ray.endpoint.ledger.engines import BUSY_SECONDS, postgres_engine, sqlite_engine
from c2b_ray.endpoint.ledger.outage import DOWN_SECONDS, DatabaseDownError, named
from c2b_ray.errors import ConfigError

__all__ = ["Database", "DatabaseDownError", "Transaction"]

T = TypeVar("T")
ALONE = 4
"""The most blocks of `Database.alone` at a time, in a process whose ledger is in PostgreSQL."""
_SQLITE_CLOCK: ColumnElement[float] = func.c2b_clock(type_=Double())
_POSTGRES_CLOCK: ColumnElement[float] = cast(func.extract("epoch", func.clock_timestamp()), Double())


Writer = Callable[["Transaction", list[Any]], object]
"""A function that writes all these rows at once."""


class Transaction:
    """Statements that are committed together or not at all.

    `known`: values that one write read under the transaction's locks, or wrote, and that later writes of the
    transaction need not read again.
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
        """Takes the time from a statement that also selected `clock()`."""
        self._now = seconds

    def clock(self) -> ColumnElement[float]:
        """Returns the database's clock (`Database.clock`)."""
        return self._database.clock()

    @property
    def steady_s(self) -> float:
        """Seconds for which the database's clock has not been set, as far as this process knows."""
        return self._database.watch.steady_s

    @property
    def locks_rows(self) -> bool:
        """Whether the database locks rows, as PostgreSQL does. SQLite locks the whole database from the first statement
        on."""
        return not self._database.is_sqlite

    def after_commit(self, call: Callable[[], object]) -> None:
        """Registers a function that is called once after the commit, and never if there is none."""
        self._after.append(call)

    def kept(self) -> None:
        for call in self._after:
            call()

    def at_end(self, write: Writer, row: Any) -> None:
        """Registers a row to be written right before the commit, in one call of `write` with all rows registered for
        it.

        No statement sees the row before. Writers are called in the order of their first rows.
        """
        self._rows.setdefault(write, []).append(row)

    def write_rows(self) -> None:
        for write, rows in self._rows.items():
            write(self, rows)
        self._rows = {}

    def part(self) -> Transaction:
        """Returns a transaction for one of several writes that may fail on their own.

        What it registers for later joins this transaction only by `take`.
        """
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

    It is safe to use from several threads; a forked process makes its own. It connects on first use. Raises ConfigError
    if the URL names no such database.
    """

    def __init__(self, url: str, connections: int = 20) -> None:
        """`connections`: the most connections at once. A caller waits `BUSY_SECONDS` for a free one."""
        self.is_sqlite = url.startswith("sqlite:")
        self._lock = threading.Lock() if self.is_sqlite else None
        self.watch = Watch()
        if self.is_sqlite:
            self.engine = sqlite_engine(url, connections)
            self._alone: Alone = AloneOnHost(url.removeprefix("sqlite:///"))
        elif url.startswith(("postgresql://", "postgresql+psycopg://")):
            self.engine = postgres_engine(url, connections)
            self._alone = AloneOnServer(postgres_engine(url, ALONE, WAIT_SECONDS))
        else:
            raise ConfigError("database", "expected sqlite:///PATH or postgresql://USER@HOST/NAME")
        # In SQLite a read is one transaction without a lock; in PostgreSQL each statement is a transaction.
        read_only = {} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._reads: Engine = self.engine.execution_options(**read_only)
        self._writes: Engine = self.engine.execution_options(c2b_write=True)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Opens a transaction that commits at the end of the block and rolls back if an error leaves it.

        DatabaseDownError means that nothing was kept, unless the connection was lost during the commit itself; then the
        outcome is unknown.
        """
        with named(self.is_sqlite), self._turn(), self._writes.begin() as connection:
            transaction = Transaction(self, connection)
            yield transaction
            transaction.write_rows()
        transaction.kept()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Opens a connection for statements that change nothing."""
        with named(self.is_sqlite), self._reads.connect() as connection:
            yield Transaction(self, connection)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Like `reading`, but all statements see the same moment, however long they take."""
        wanted: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with named(self.is_sqlite), self.engine.execution_options(**wanted).connect() as connection:
            if not self.is_sqlite:
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
            yield Transaction(self, connection)

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Lets one block for `name` run at a time, among all processes of the ledger; it is no transaction.

        Raises DatabaseDownError if its turn does not come within `alone.WAIT_SECONDS`.
        """
        return self._alone.hold(name)

    def clock(self) -> ColumnElement[float]:
        """Returns the SQL expression for the seconds since 1970, by a clock that all processes of the ledger share.

        That is the server's clock for PostgreSQL, and the host's for SQLite, which all processes of a ledger run on.
        """
        return _SQLITE_CLOCK if self.is_sqlite else _POSTGRES_CLOCK

    def now(self, connection: Connection) -> float:
        """Returns the value of `clock()`, and watches whether the clock was set."""
        return self.watch.read(lambda: float(connection.scalar(select(self.clock())) or 0.0))

    def ping(self) -> None:
        """Raises DatabaseDownError if the database does not answer."""
        with self.reading() as tx:
            tx.scalar(select(1))

    def overwrite_deleted(self) -> None:
        """Overwrites deleted rows on the disk, in SQLite: until its log is written into its file, they stand there. A
        reader delays a part until the next call. PostgreSQL's vacuum does so by itself."""
        if self.is_sqlite:
            with (
                named(True),
                self._turn(),
                closing(self.engine.raw_connection()) as connection,
            ):  # outside of any transaction
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        self.engine.dispose()
        self._alone.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Lets one thread of this process write at a time. SQLite itself waits by polling, which starves the longest
        waiter."""
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
    """Adds a row lock to a SELECT. Inserts of rows that refer to the locked rows need not wait."""
    return statement.with_for_update(key_share=True) if transaction.locks_rows else statement


def record(kind: Callable[..., T], row: Iterable[Any]) -> T:
    """Builds a dataclass from a row whose columns are its fields, in order."""
    return kind(*row)
