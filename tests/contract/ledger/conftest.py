"""An empty ledger for each test, in SQLite and in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import ledgers
import postgres
import pytest
from sqlalchemy import text

from c2b_ray.endpoint.ledger import audit_log, migrations, tables
from c2b_ray.endpoint.ledger.database import Database


@pytest.fixture(scope="session")
def ledger_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledgers.new_template(tmp_path_factory.mktemp("ledger"))


@pytest.fixture
def in_sqlite(ledger_template: Path, tmp_path: Path) -> Iterator[Callable[[], ledgers.SetDatabase]]:
    with ledgers.opening(ledgers.sqlite_url(ledger_template, tmp_path)) as open_:
        yield open_


@pytest.fixture(scope="module")
def url(postgres_server: postgres.Postgres) -> str:
    """Of a database of the module's own, migrated."""
    url = postgres_server.url(postgres_server.new_database())
    db = Database(url)
    migrations.prepare(db)
    db.close()
    return url


@pytest.fixture
def in_postgresql(url: str) -> Iterator[Callable[[], ledgers.SetDatabase]]:
    with ledgers.opening(url) as open_:
        with open_().transaction() as tx:
            names = ", ".join(table.name for table in tables.metadata.sorted_tables if table.name != "audit_head")
            tx.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
            tx.execute(tables.audit_head.update().values(seq=0, hash=audit_log.BEGINNING))
        yield open_


@pytest.fixture(params=["in_sqlite", pytest.param("in_postgresql", marks=pytest.mark.long)])
def open_db(request: pytest.FixtureRequest) -> Callable[[], ledgers.SetDatabase]:
    """Opens the ledger, each time as another process would."""
    opened: Callable[[], ledgers.SetDatabase] = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def db(open_db: Callable[[], ledgers.SetDatabase]) -> ledgers.SetDatabase:
    return open_db()
