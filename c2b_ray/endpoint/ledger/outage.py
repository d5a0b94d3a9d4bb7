"""Translates the errors of SQLite and PostgreSQL that mean an outage into one error. It knows their codes, and no
table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from c2b_ray.errors import C2BError, InputError, StorageError

DOWN_SECONDS = 5.0
BUSY_SECONDS = 1.0
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
        raise DatabaseDownError("every connection to the database is in use", BUSY_SECONDS) from error
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
        return DatabaseDownError(f"the database is busy: {text}", BUSY_SECONDS)
    if code in _SQLITE_DOWN:
        what = "written" if (readable := code in _SQLITE_UNWRITABLE) else "written or read"
        return DatabaseDownError(f"the database cannot be {what}: {text}", DOWN_SECONDS, readable)
    if code in _SQLITE_DAMAGED:
        return StorageError(f"the file is damaged or not a database: {text}; restore a backup of it")
    if text.startswith(("no such table", "no such column")):
        return SchemaError(f"the database is not a ledger of this version ({text}); {MIGRATE}")
    return None


def _postgres(error: exc.DBAPIError) -> C2BError | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    text = _first_line(error)
    if state.startswith(_POSTGRES_BUSY):
        return DatabaseDownError(f"the database is busy: {text}", BUSY_SECONDS)
    if state in _POSTGRES_UNWRITABLE:
        return DatabaseDownError(f"the database cannot be written: {text}", DOWN_SECONDS, readable=True)
    lost = not state and isinstance(error, exc.OperationalError | exc.InterfaceError)
    if lost or error.connection_invalidated or state.startswith(_POSTGRES_DOWN):
        return DatabaseDownError(f"the database does not answer: {text}", DOWN_SECONDS)
    if state in _UNKNOWN_TABLE:
        return SchemaError(f"the database is not a ledger of this version ({text}); {MIGRATE}")
    return None
