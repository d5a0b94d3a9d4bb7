"""An empty ledger in SQLite for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import ledgers
import pytest


@pytest.fixture(scope="session")
def ledger_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ledgers.new_template(tmp_path_factory.mktemp("ledger"))


@pytest.fixture
def open_db(ledger_template: Path, tmp_path: Path) -> Iterator[Callable[[], ledgers.SetDatabase]]:
    """Opens the test's ledger, each time as another process would."""
    with ledgers.opening(ledgers.sqlite_url(ledger_template, tmp_path)) as open_:
        yield open_


@pytest.fixture
def db(open_db: Callable[[], ledgers.SetDatabase]) -> ledgers.SetDatabase:
    return open_db()
