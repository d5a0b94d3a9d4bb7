"""Lets one block of code run at a time for a name, among all processes of a ledger, outside of its transactions.

For work that takes long, such as moving a file to a store, and that rows must agree with. It knows no table. In SQLite,
whose processes share a host, locks of files beside the database do it; in PostgreSQL, its advisory locks. Both end with
their process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Engine, func, select

from c2b_ray.endpoint.ledger.outage import DOWN_SECONDS, DatabaseDownError, named

WAIT_SECONDS = 60.0
"""Seconds that a block waits for its turn."""
LONGEST_SECONDS = 1800.0
"""Seconds after which PostgreSQL ends a block: its host may be gone without notice."""
_FILES = 16


class Alone(Protocol):
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
            why = f"another process held the lock of {name} for {WAIT_SECONDS:g} s"
            raise DatabaseDownError(why, DOWN_SECONDS) from error
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
