"""The ledger's tables from revision to revision, both ways, by Alembic, in one transaction: all of it or nothing.

`versions` holds a file for each revision. Nothing is migrated automatically: a database of another revision is refused
with the command to run, an empty one gets the newest. To revision 0, which is an empty database, only `discard` goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from c2b_ray.endpoint.ledger.database import Database, Transaction
from c2b_ray.endpoint.ledger.outage import SchemaError
from c2b_ray.errors import ConfigError, nearest

EMPTY = "0"
"""The revision of a database without tables."""
_LOCK = 7_242_001
"""Of PostgreSQL: two replicas that start at once migrate one after the other."""


def revisions() -> list[str]:
    """The known ones, the oldest first, without `EMPTY`."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def newest() -> str:
    return revisions()[-1]


def revision(db: Database) -> str:
    """That of the database; `EMPTY` where it has no tables of a ledger."""
    with db.reading() as tx:
        return _revision(tx)


def migrate(db: Database, to: str | None = None, *, discard: bool = False) -> tuple[str, str]:
    """Brings the tables to a revision, by default the newest; from where to where it went.

    ConfigError where there is no such revision; SchemaError where the database is at one that this version does not
    know, and where it would lose all rows (to `EMPTY`) without `discard`.
    """
    target = newest() if to is None else to
    if target not in (EMPTY, *revisions()):
        raise ConfigError("to", f"{target[:50]!r} is no revision; {nearest(target, [EMPTY, *revisions()])}")
    with db.transaction() as tx:
        if tx.locks_rows:
            tx.execute(text("SET LOCAL statement_timeout = 0"))
            tx.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        before = _revision(tx)
        _refuse_unknown(before)
        if target == EMPTY and before != EMPTY and not discard:
            raise SchemaError("revision 0 is an empty database: all of the ledger would be lost; say so to do it")
        _run(tx, before, target)
    return before, target


def prepare(db: Database) -> None:
    """An empty database gets its tables; SchemaError where it is at another revision than the newest."""
    if revision(db) == EMPTY:
        migrate(db)
    require_current(db)


def require_current(db: Database) -> None:
    """SchemaError, with the command to run, where the database is not at the newest revision."""
    there = revision(db)
    _refuse_unknown(there)
    if there != newest():
        raise SchemaError(
            f"the database is at revision {there}, this version works with {newest()}; back it up, then run: "
            "c2b endpoint migrate"
        )


def _refuse_unknown(there: str) -> None:
    if there not in (EMPTY, *revisions()):
        raise SchemaError(
            f"the database is at revision {there[:50]}, which this version does not know (it knows up to {newest()}); "
            f"install the version that made it, or with that version run: c2b endpoint migrate --to {newest()}"
        )


def _revision(tx: Transaction) -> str:
    there = MigrationContext.configure(tx.connection).get_current_revision()
    if there is None and inspect(tx.connection).has_table("jobs"):
        raise SchemaError("the database has a table `jobs` that is no ledger's; name another database")
    return there or EMPTY


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def _run(tx: Transaction, before: str, target: str) -> None:
    known = [EMPTY, *revisions()]
    up = known.index(target) >= known.index(before)
    destination = "base" if target == EMPTY else target
    scripts = _scripts()

    def steps(there: Any, context: MigrationContext) -> Any:
        move = scripts._upgrade_revs if up else scripts._downgrade_revs
        return move(destination, there)

    with EnvironmentContext(Config(), scripts, fn=steps, destination_rev=destination) as environment:
        environment.configure(connection=tx.connection, transactional_ddl=True)
        environment.run_migrations()
