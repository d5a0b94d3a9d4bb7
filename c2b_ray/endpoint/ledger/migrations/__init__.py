"""Migrates the ledger's tables between revisions, up and down, with Alembic, in one transaction.

`versions` holds a file for each revision. Nothing is migrated automatically: a database at another revision is refused
with the command to run; an empty one gets the newest. Revision 0 is an empty database, and needs `discard`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from c2b_ray.endpoint.ledger.database import Database, SchemaError, Transaction
from c2b_ray.errors import ConfigError, nearest

EMPTY = "0"
"""The revision of a database without tables."""
_LOCK = 7_242_001
"""An advisory lock of PostgreSQL: replicas that start at the same time migrate one after the other."""


def revisions() -> list[str]:
    """Returns the known revisions, oldest first, without `EMPTY`."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def newest() -> str:
    return revisions()[-1]


def revision(db: Database) -> str:
    """Returns the database's revision; `EMPTY` if it has no tables of a ledger."""
    with db.reading() as tx:
        return _revision(tx)


def migrate(db: Database, to: str | None = None, *, discard: bool = False) -> tuple[str, str]:
    """Brings the tables to a revision, by default the newest; returns the revisions before and after.

    Raises ConfigError if there is no such revision. Raises SchemaError if the database is at a revision that this
    version does not know, or if all rows would be lost (to `EMPTY`) without `discard`.
    """
    target = newest() if to is None else to
    if target not in (EMPTY, *revisions()):
        raise ConfigError("to", f"{target[:50]!r} is not a revision; {nearest(target, [EMPTY, *revisions()])}")
    with db.transaction() as tx:
        if tx.locks_rows:
            tx.execute(text("SET LOCAL statement_timeout = 0"))
            tx.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        old_revision = _revision(tx)
        _refuse_unknown(old_revision)
        if target == EMPTY and old_revision != EMPTY and not discard:
            raise SchemaError(
                "revision 0 is an empty database: all of the ledger would be lost; to do it, add --discard"
            )
        _run(tx, old_revision, target)
    return old_revision, target


def prepare(db: Database) -> None:
    """Creates the tables in an empty database. Raises SchemaError if it is not at the newest revision."""
    if revision(db) == EMPTY:
        migrate(db)
    require_current(db)


def require_current(db: Database) -> None:
    """Raises SchemaError, with the command to run, if the database is not at the newest revision."""
    stored = revision(db)
    _refuse_unknown(stored)
    if stored != newest():
        raise SchemaError(
            f"the database is at revision {stored}, this version works with {newest()}; back it up, then run: "
            "c2b endpoint migrate"
        )


def _refuse_unknown(stored: str) -> None:
    if stored not in (EMPTY, *revisions()):
        raise SchemaError(
            f"the database is at revision {stored[:50]}, which this version does not know (it knows up to {newest()}); "
            f"install the version that made it, or with that version run: c2b endpoint migrate --to {newest()}"
        )


def _revision(tx: Transaction) -> str:
    stored = MigrationContext.configure(tx.connection).get_current_revision()
    if stored is None and inspect(tx.connection).has_table("jobs"):
        raise SchemaError("the database has a table `jobs` of another program; name another database")
    return stored or EMPTY


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def _run(tx: Transaction, stored: str, target: str) -> None:
    ordered = [EMPTY, *revisions()]
    is_upgrade = ordered.index(target) >= ordered.index(stored)
    destination = "base" if target == EMPTY else target
    scripts = _scripts()

    def steps(stored: Any, context: MigrationContext) -> Any:
        move = scripts._upgrade_revs if is_upgrade else scripts._downgrade_revs
        return move(destination, stored)

    with EnvironmentContext(Config(), scripts, fn=steps, destination_rev=destination) as environment:
        environment.configure(connection=tx.connection, transactional_ddl=True)
        environment.run_migrations()
