"""Sessions of the web pages that were signed out early: copies of their cookies no longer work.

Other sessions have no row. Rows hold hashes, so a copy of the ledger does not hold what a cookie is made of.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database

_ended = tables.ended_sessions.c


def end(db: Database, session: str, until: float) -> None:
    """Ends a session. `session`: its secret name. `until`: when it would have ended by itself. A second call has no
    effect."""
    with db.transaction() as tx:
        insert = postgresql.insert if tx.locks_rows else sqlite.insert
        values = {"id": _hash(session), "until": until}
        tx.execute(insert(tables.ended_sessions).values(values).on_conflict_do_nothing())


def has_ended(db: Database, session: str) -> bool:
    """Returns whether the session was signed out, in this or any other process of the endpoint."""
    with db.reading() as tx:
        return tx.scalar(select(_ended.until).where(_ended.id == _hash(session))) is not None


def forget(db: Database, before: float) -> int:
    """Deletes the rows of sessions that would have ended before this time anyway; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.ended_sessions).where(_ended.until < before)).rowcount


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
