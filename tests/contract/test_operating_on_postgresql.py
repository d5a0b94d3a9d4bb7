"""What operators use, on a real PostgreSQL: a laptop's ledger moved there and back, gauges, retention."""

from collections.abc import Iterator
from pathlib import Path

import ledgers
import postgres
import pytest

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import audit_log, migrations, running, tenants, webhooks
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.operate import metrics, retention
from c2b_ray.endpoint.operate.backup import backup, restore
from c2b_ray.errors import InputError


@pytest.fixture
def db(postgres_server: postgres.Postgres) -> Iterator[Database]:
    made = Database(postgres_server.url(postgres_server.new_database()))
    yield made
    made.close()


def test_a_ledger_moves_to_postgresql_and_back(db: Database, tmp_path: Path) -> None:
    config = read_endpoint({"folder": str(tmp_path / "laptop")})
    laptop, second = (Database(f"sqlite:///{tmp_path / name}.db") for name in ("laptop", "second"))
    migrations.prepare(laptop)
    who = ledgers.member(laptop)
    webhooks.create(laptop, who.tenant_id, "https://example.org", "s")
    claimed = ledgers.claimed(laptop, who)
    key = tenants.create_key(laptop, who.tenant_id, "ci", tenants.SCOPES).text
    head = audit_log.head(laptop)
    backup(laptop, config, tmp_path / "copy")

    restore(db, config, tmp_path / "copy")
    assert tenants.verify_key(db, key) is not None
    assert audit_log.verify(db, head) is None
    again = ledgers.claimed(db, who)  # its events get ids that no restored event has
    running.finish(db, again.job.id, again.fence)
    assert webhooks.find_event(db, again.job.id, 0)[1] > webhooks.find_event(laptop, claimed.job.id, 0)[1]
    with pytest.raises(InputError, match="empty database"):
        restore(db, config, tmp_path / "copy")

    backup(db, config, tmp_path / "back")
    restore(second, config, tmp_path / "back")
    assert audit_log.verify(second, audit_log.head(db)) is None
    laptop.close()
    second.close()


def test_gauges_and_retention(db: Database, tmp_path: Path) -> None:
    migrations.prepare(db)
    who = ledgers.member(db)
    running.take_lease(db, f"{running.SLOT}runner/0", "runner", 60)
    webhooks.create(db, who.tenant_id, "https://example.org", "s")
    claim = ledgers.claimed(db, who)
    ledgers.submit(db, who)
    reading = metrics.read(db)
    assert (reading.jobs, reading.busy, reading.slots) == ({"queued": 1, "running": 1}, 1, 1)
    running.finish(db, claim.job.id, claim.fence, "run")
    ledgers.set_row(db, claim.job.id, ended=1.0)
    config = read_endpoint({"folder": str(tmp_path), "retention": {"runs_days": 1, "uploads_days": 1}})
    deleted = retention.purge(db, config)
    assert (deleted.runs, deleted.uploads, deleted.leftovers) == (1, 0, 0)
    assert metrics.read(db).jobs == {"queued": 1, "running": 0}
