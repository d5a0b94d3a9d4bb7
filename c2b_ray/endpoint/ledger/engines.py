"""Settings of the connections to SQLite or PostgreSQL, and the test whether an idle connection still works.

It knows no table and no transaction.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc

from c2b_ray.errors import ConfigError, StorageError

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
        connection.create_function("md5", 1, _md5, deterministic=True)  # PostgreSQL has it
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("c2b_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


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
