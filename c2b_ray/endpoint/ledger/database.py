"""Connections to the ledger's database, its transactions and its clock, in SQLite or PostgreSQL.

It knows no table. What a lost connection, a lock that is not let go, or a full disk says in either database becomes a
`DatabaseDownError`: nothing of the transaction was kept, what was committed before it stays.

SQLite is for processes of one host. A write transaction takes the write lock at its beginning (BEGIN IMMEDIATE), so
that none fails half way for another's; threads of one process queue for it in the process. Each commit is synced to
disk. PostgreSQL runs at READ COMMITTED: who must not overtake another locks a row.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Double,
    Engine,
    Executable,
    cast,
    create_engine,
    event,
    exc,
    func,
    select,
)

from c2b_ray.endpoint.ledger.outage import DOWN_SECONDS, DatabaseDownError, named
from c2b_ray.errors import ConfigError, StorageError

__all__ = ["Database", "DatabaseDownError", "Transaction"]

T = TypeVar("T")
BUSY_SECONDS = 5.0
"""How long a statement waits for another's lock before the database counts as down."""
IDLE_SECONDS = 2.0
"""A connection that has been idle longer is asked whether it lives before it is used."""
_SQLITE_CLOCK: ColumnElement[float] = func.c2b_clock(type_=Double())
_POSTGRES_CLOCK: ColumnElement[float] = cast(func.extract("epoch", func.clock_timestamp()), Double())
_SESSION = (
    "-c timezone=UTC -c lock_timeout=10000 -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000"
)


class Transaction:
    """Statements that are kept together or not at all."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self.connection = connection
        self._now: float | None = None
        self._after: list[Callable[[], object]] = []

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
            self.engine = _sqlite(url, connections)
        elif url.startswith(("postgresql://", "postgresql+psycopg://")):
            self.engine = _postgresql(url, connections)
        else:
            raise ConfigError("database", "expected sqlite:///PATH or postgresql://USER@HOST/NAME")
        # In SQLite a read is one, without a lock; in PostgreSQL each statement of a read is a transaction of its own.
        read_only = {} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._reads: Engine = self.engine.execution_options(**read_only)
        self._writes: Engine = self.engine.execution_options(c2b_write=True)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commits at the end, rolls back where an error leaves it. DatabaseDownError: nothing of it was kept, unless
        the connection was lost during the commit itself, of which nobody can tell."""
        with named(self.is_sqlite), self._turn(), self._writes.begin() as connection:
            transaction = Transaction(self, connection)
            yield transaction
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


_making = threading.Lock()


def _make_private(path: str) -> None:
    """Makes the file where it is not there, for its owner alone: it holds hashes of keys.

    A file that is there is not opened. A process that closes any descriptor of a file gives up all its locks on it,
    those of SQLite's connections too; the next process to close the database would take itself for the last one, and
    delete the log that this one still writes.
    """
    with _making, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _sqlite(url: str, connections: int) -> Engine:
    path = url.removeprefix("sqlite:///")
    if path == url or path in ("", ":memory:"):
        raise ConfigError("database", "a ledger in SQLite is a file: sqlite:////absolute/path.db")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        _make_private(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {error.strerror or error}", location=path) from error
    engine = create_engine(
        f"sqlite:///{path}",
        pool_size=connections,
        max_overflow=0,
        pool_timeout=BUSY_SECONDS,
        hide_parameters=True,
        connect_args={"timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by Python's module
        [(mode,)] = connection.execute("PRAGMA journal_mode = WAL").fetchall()
        if mode != "wal":
            raise StorageError(
                f"{path}: its file system cannot hold a ledger in SQLite; use a local disk, or PostgreSQL"
            )
        connection.create_function("c2b_clock", 0, time.time)
        for pragma in ("synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("c2b_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: str, connections: int) -> Engine:
    engine = create_engine(
        "postgresql+psycopg" + url.removeprefix("postgresql+psycopg").removeprefix("postgresql"),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=BUSY_SECONDS,
        hide_parameters=True,
        connect_args={"connect_timeout": 5, "tcp_user_timeout": 15_000, "options": _SESSION},
    )

    @event.listens_for(engine, "checkin")
    def _returned(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _alive(connection: Any, record: Any, proxy: Any) -> None:
        """A restart of the database ends idle connections, of which nobody is told."""
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < IDLE_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise exc.DisconnectionError from error

    return engine


def locked(transaction: Transaction, statement: Any) -> Any:
    """The SELECT with its rows locked against who else would lock them; inserts that refer to them go on."""
    return statement.with_for_update(key_share=True) if transaction.locks_rows else statement


def record(kind: Callable[..., T], row: Iterable[Any]) -> T:
    """A dataclass from a row whose columns are its fields, in their order."""
    return kind(*row)
