"""Connections to the ledger's database, its transactions and its clock, in SQLite or PostgreSQL.

It knows no table. A lost connection, a lock that is not released and a full disk become a `DatabaseDownError` in both
databases: nothing of the transaction was kept, and earlier commits stay.

SQLite serves processes of one host. A write transaction takes the write lock at its start (BEGIN IMMEDIATE), so that
none fails half way because of another; threads of one process queue for the lock in the process. Each commit is synced
to disk. PostgreSQL runs at READ COMMITTED: transactions that must run one after the other lock a row.

Leases are written by the database's clock, which all processes share. Where somebody sets it, leases of living holders
seem to have passed; a `ClockWatch` tells for how long it has run like a clock that cannot be set.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock, Timeout
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

from c2b_ray.errors import C2BError, ConfigError, InputError, StorageError

__all__ = ["Database", "DatabaseDownError", "Transaction"]


# Clocks: one that cannot be set, and a watch on one that can, such as the database's.


_EVER_S = 1e12
STEP_S = 1.0
"""Seconds by which a clock that was not set may differ from one reading to the next."""


def steady_now() -> float:
    """Returns the seconds of a clock that cannot be set and that runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatch:
    """Watches a clock that may be set. It is safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: tuple[float, float] | None = None
        self._set_at = float("-inf")

    def read(self, clock: Callable[[], float]) -> float:
        """Reads the clock and returns its seconds. A reading that takes long says little, and is not compared."""
        read_from = steady_now()
        seconds = clock()
        read_until = steady_now()
        if read_until - read_from <= STEP_S:
            with self._lock:
                earlier_ahead, self._ahead = self._ahead, (seconds - read_until, seconds - read_from)
                low, high = self._ahead
                if earlier_ahead is not None and (low > earlier_ahead[1] + STEP_S or high < earlier_ahead[0] - STEP_S):
                    self._set_at = read_until
        return seconds

    @property
    def steady_s(self) -> float:
        """Seconds since the clock was last seen to have been set; thousands of years if it never was."""
        return min(_EVER_S, steady_now() - self._set_at)


# Settings of the connections to SQLite or PostgreSQL, and the test whether an idle connection still works.


BUSY_SECONDS = 5.0
"""Seconds that a statement waits for a lock before the database counts as down."""
IDLE_SECONDS = 2.0
"""A connection that was idle for longer is tested before it is used."""
_SESSION = (
    "-c timezone=UTC -c lock_timeout=10000 -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000"
)

_making = threading.Lock()


def _make_private(path: str) -> None:
    """Creates the file if it is missing, readable by its owner alone, because it holds hashes of keys.

    It never opens an existing file. A process that closes any descriptor of a file drops all its locks on that file,
    also those of SQLite's connections; the next process to close the database would then think it is the last, and
    delete the log that this process still writes.
    """
    with _making, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def sqlite_engine(url: str, connections: int) -> Engine:
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
        md5 = partial(hashlib.md5, usedforsecurity=False)  # PostgreSQL has it
        connection.create_function("md5", 1, lambda text: md5(text.encode()).hexdigest(), deterministic=True)
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("c2b_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def postgres_engine(url: str, connections: int, wait_seconds: float = BUSY_SECONDS) -> Engine:
    """`wait_seconds`: how long a caller waits for a free connection."""
    engine = create_engine(
        "postgresql+psycopg" + url.removeprefix("postgresql+psycopg").removeprefix("postgresql"),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=wait_seconds,
        hide_parameters=True,
        connect_args={"connect_timeout": 5, "tcp_user_timeout": 15_000, "options": _SESSION},
    )

    @event.listens_for(engine, "checkin")
    def _returned(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _alive(connection: Any, record: Any, proxy: Any) -> None:
        """Tests a connection that was idle: a restart of the database ends idle connections without notice."""
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < IDLE_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise exc.DisconnectionError from error

    return engine


# Translates the errors of SQLite and PostgreSQL that mean an outage into one error. It knows their codes, and no
# table.


DOWN_SECONDS = 5.0
RETRY_SECONDS = 1.0
MIGRATE = "run: c2b endpoint migrate"

_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SQLITE_DOWN = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM,
}  # fmt: skip
_SQLITE_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}
_SQLITE_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_POSTGRES_BUSY = ("40001", "40P01", "55P03", "57014", "25P03", "25P04")
"""Serialisation failure, deadlock, lock timeout, statement timeout, transaction timeouts."""
_POSTGRES_DOWN = ("08", "53", "57P", "58", "25006", "XX")
"""Connection, resources (full disk, memory, connections), shutdown, system, a read-only standby, internal."""
_POSTGRES_UNWRITABLE = ("53100", "25006")
"""A full disk, a read-only standby."""
_UNKNOWN_TABLE = ("42P01", "42703")


class DatabaseDownError(C2BError):
    """The database does not answer, is locked or cannot write. `retry_after`: seconds until a retry is worthwhile.
    `readable`: whether it only cannot be written, as on a full disk."""

    def __init__(self, message: str, retry_after: float, readable: bool = False) -> None:
        super().__init__(message)
        self.retry_after, self.readable = retry_after, readable


class SchemaError(InputError):
    """The tables are not those of this version."""


@contextmanager
def named(is_sqlite: bool) -> Iterator[None]:
    """Translates the errors that the database raises in the block. Other errors of statements, such as a constraint's,
    pass."""
    try:
        yield
    except exc.TimeoutError as error:
        raise DatabaseDownError("every connection to the database is in use", RETRY_SECONDS) from error
    except exc.DBAPIError as error:
        translated = _sqlite(error) if is_sqlite else _postgres(error)
        if translated is None:
            raise
        raise translated from error


def _first_line(error: exc.DBAPIError) -> str:
    return (str(error.orig).strip().splitlines() or ["no reason"])[0]


def _sqlite(error: exc.DBAPIError) -> C2BError | None:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # the higher bits only refine the code
    text = _first_line(error)
    if code in _SQLITE_BUSY:
        return DatabaseDownError(f"the database is busy: {text}", RETRY_SECONDS)
    if code in _SQLITE_DOWN:
        action = "written" if (readable := code in _SQLITE_UNWRITABLE) else "written or read"
        return DatabaseDownError(f"the database cannot be {action}: {text}", DOWN_SECONDS, readable)
    if code in _SQLITE_DAMAGED:
        return StorageError(f"the file is damaged or not a database: {text}; restore a backup of it")
    if text.startswith(("no such table", "no such column")):
        return SchemaError(f"the database is not a ledger of this version ({text}); {MIGRATE}")
    return None


def _postgres(error: exc.DBAPIError) -> C2BError | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    text = _first_line(error)
    if state.startswith(_POSTGRES_BUSY):
        return DatabaseDownError(f"the database is busy: {text}", RETRY_SECONDS)
    if state in _POSTGRES_UNWRITABLE:
        return DatabaseDownError(f"the database cannot be written: {text}", DOWN_SECONDS, readable=True)
    is_connection_lost = not state and isinstance(error, exc.OperationalError | exc.InterfaceError)
    if is_connection_lost or error.connection_invalidated or state.startswith(_POSTGRES_DOWN):
        return DatabaseDownError(f"the database does not answer: {text}", DOWN_SECONDS)
    if state in _UNKNOWN_TABLE:
        return SchemaError(f"the database is not a ledger of this version ({text}); {MIGRATE}")
    return None


# Lets one block of code run at a time for a name, among all processes of a ledger, outside of its transactions.


WAIT_SECONDS = 60.0
"""Seconds that a block waits for its turn."""
LONGEST_SECONDS = 1800.0
"""Seconds after which PostgreSQL ends a block: its host may be gone without notice."""
_FILES = 16


class NamedLock(Protocol):
    def hold(self, name: str) -> AbstractContextManager[None]:
        """Returns a context manager. Raises DatabaseDownError if its turn does not come within `WAIT_SECONDS`."""

    def close(self) -> None: ...


class AloneOnHost:
    """For processes of one host. `path`: of the database. Names share a few lock files, so different names may wait for
    each other."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        lock = FileLock(f"{self._path}.lock-{_number(name) % _FILES}", timeout=WAIT_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout as error:
            message = f"another process held the lock of {name} for {WAIT_SECONDS:g} s"
            raise DatabaseDownError(message, DOWN_SECONDS) from error
        except OSError as error:  # the disk is full, or may not be written
            raise DatabaseDownError(f"no lock beside the database: {error.strerror or error}", DOWN_SECONDS) from error
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Has nothing to close."""


class AloneOnServer:
    """For processes that share a PostgreSQL server. `engine`: of connections for this alone, because each block holds
    one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        with named(False), self._engine.begin() as connection:
            for limit, seconds in (
                ("lock_timeout", WAIT_SECONDS),
                ("statement_timeout", 2 * WAIT_SECONDS),
                ("idle_in_transaction_session_timeout", LONGEST_SECONDS),
            ):
                connection.exec_driver_sql(f"SET LOCAL {limit} = {int(1000 * seconds)}")
            connection.execute(select(func.pg_advisory_xact_lock(_number(name))))
            yield

    def close(self) -> None:
        self._engine.dispose()


def _number(name: str) -> int:
    """Returns a number of 63 bits, as PostgreSQL's locks have."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


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
        self.watch = ClockWatch()
        if self.is_sqlite:
            self.engine = sqlite_engine(url, connections)
            self._alone: NamedLock = AloneOnHost(url.removeprefix("sqlite:///"))
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
        options: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with named(self.is_sqlite), self.engine.execution_options(**options).connect() as connection:
            if not self.is_sqlite:
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
            yield Transaction(self, connection)

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Lets one block for `name` run at a time, among all processes of the ledger; it is no transaction.

        Raises DatabaseDownError if its turn does not come within `WAIT_SECONDS`.
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


# Unguessable ids with a prefix for their kind: job_…, key_…, tenant_…, hook_…, delivery_…


_BYTES = 12
_ID = re.compile(r"[a-z]{1,16}_[0-9a-f]{24}")


def new_id(kind: str) -> str:
    """Returns a new id: `kind`, an underscore and 96 random bits in hexadecimal."""
    return f"{kind}_{secrets.token_hex(_BYTES)}"


def is_id(text: str) -> bool:
    """Returns whether a text, such as part of a URL, has the form of an id. Databases refuse some other texts (NUL)."""
    return _ID.fullmatch(text) is not None
