"""Token buckets in the ledger limit the rate of requests: `rate` tokens a second flow in, up to `burst`.

All replicas share the buckets. To avoid a write to the database for every request, `Throttle` takes several tokens at
once and spends them in its process. The replicas together never spend more than flowed in; tokens that a process took
and did not spend within a second are lost. Where the ledger can be read and not written, nothing is counted.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, Transaction
from c2b_ray.endpoint.ledger.quotas import QuotaDenial

_buckets = tables.buckets.c
FRESH_SECONDS = 1.0
_HANDFULS = 10
"""A handful is at most a tenth of the burst, and at most the tokens of a tenth of a second."""
_REMEMBERED = 10_000


@dataclass(frozen=True)
class Allowance:
    """The state of a bucket, for the headers of a response: its size in tokens, the tokens left, and the seconds until
    it is full."""

    limit: int
    remaining: int
    reset: float


def take(db: Database, name: str, rate: float, burst: int, tokens: float = 1.0) -> Allowance:
    """Takes tokens from a bucket, which starts full. Raises Denied, with the time until there will be enough."""
    with db.transaction() as tx:
        left = _take(tx, name, rate, burst, tokens)
        if left is None:
            there = _tokens(tx, name, rate, burst)
            ahead = update(tables.buckets).where(_buckets.name == name, _buckets.updated > tx.now + _AHEAD_S)
            tx.execute(ahead.values(updated=tx.now))  # else it would stay empty until the clock has caught up
    if left is None:
        raise _denied(rate, burst, there, tokens)
    return Allowance(burst, int(left), (burst - left) / rate)


_AHEAD_S = 1.0
"""Seconds by which a bucket's last change lies ahead only if the clock was set back since."""


class Throttle:
    """Takes tokens from buckets for one process. It is safe to use from several threads."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._handfuls: dict[str, _Handful] = {}

    def take(self, name: str, rate: float, burst: int) -> Allowance:
        """Takes one token. Raises Denied, without a query while the last answer says that no token can be there yet."""
        with self._lock:
            if len(self._handfuls) >= _REMEMBERED:
                self._handfuls.clear()
            handful = self._handfuls.setdefault(name, _Handful())
        with handful.lock:
            now = time.monotonic()
            if handful.empty_until > now:
                raise _denied(rate, burst, 1 - rate * (handful.empty_until - now), 1)
            if handful.tokens < 1 or now >= handful.stale_at:
                self._fill(handful, name, rate, burst)
            handful.tokens -= 1
            left = handful.left + handful.tokens
            return Allowance(burst, int(left), (burst - left) / rate)

    def _fill(self, handful: _Handful, name: str, rate: float, burst: int) -> None:
        wanted = max(1, int(min(rate, burst) / _HANDFULS))
        for tokens in dict.fromkeys((wanted, 1)):
            try:
                left = take(self._db, name, rate, burst, tokens)
            except QuotaDenial as denied:
                if tokens > 1:
                    continue
                handful.tokens, handful.empty_until = 0, time.monotonic() + denied.retry_after
                raise
            except DatabaseDownError as down:
                if not down.readable:
                    raise
                left = Allowance(burst, 0, 0.0)  # what only reads the ledger goes on
            handful.tokens, handful.left = tokens, left.remaining
            handful.stale_at = time.monotonic() + FRESH_SECONDS
            return


class _Handful:
    """Tokens that this process took from a bucket and may spend until `stale_at`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens, self.left = 0, 0
        self.stale_at = self.empty_until = 0.0


def forget(db: Database, untouched_since: float) -> int:
    """Deletes the buckets that nobody took from since this time, which are full by now; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.buckets).where(_buckets.updated < untouched_since)).rowcount


def _take(tx: Transaction, name: str, rate: float, burst: int, tokens: float) -> float | None:
    """Takes tokens and returns how many are left; None if there are not enough.

    It is one statement, so that concurrent calls take one after the other.
    """
    now = tx.now
    insert = postgresql.insert(tables.buckets) if tx.locks_rows else sqlite.insert(tables.buckets)
    there = _filled(now, rate, burst)
    taken = insert.values(name=name, tokens=burst - tokens, updated=now).on_conflict_do_update(
        index_elements=["name"], set_={"tokens": there - tokens, "updated": now}, where=there >= tokens
    )
    row = tx.execute(taken.returning(_buckets.tokens)).first()
    return None if row is None else float(row[0])


def _filled(now: float, rate: float, burst: int) -> ColumnElement[float]:
    """Returns an expression for the tokens in a bucket now.

    A bucket whose last change lies in the future, because the clock was set back, fills from now on.
    """
    since = case((_buckets.updated > now, 0.0), else_=now - _buckets.updated)
    grown = _buckets.tokens + since * rate
    return case((grown > burst, float(burst)), else_=grown)


def _tokens(tx: Transaction, name: str, rate: float, burst: int) -> float:
    there = tx.scalar(select(_filled(tx.now, rate, burst)).where(_buckets.name == name))
    return float(there or 0.0)


def _denied(rate: float, burst: int, there: float, wanted: float) -> QuotaDenial:
    wait = max(0.0, wanted - there) / rate
    message = f"more than {rate:g} requests a second; the next in {wait:.1f} s"
    return QuotaDenial(message, "requests", retry_after=wait, limit=burst, remaining=max(0, int(there)))
