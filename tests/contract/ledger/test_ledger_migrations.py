"""The contract of a ledger's migrations: they keep every row, also where they are interrupted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ledgers import PLENTY, OpenDb, at_once, claimed, everything, member, submit
from sqlalchemy import text

from c2b_ray.endpoint.ledger import audit_log, jobs, migrations, running, tables, uploads, webhooks
from c2b_ray.endpoint.ledger.database import Database, SchemaError
from c2b_ray.errors import ConfigError


class TestMigrations:
    def test_down_and_up_again_keep_every_row(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        running.finish(db, claim.job.id, claim.fence)
        before = everything(db)
        assert migrations.migrate(db, "0001") == (migrations.newest(), "0001")
        with pytest.raises(SchemaError, match="c2b endpoint migrate"):
            migrations.prepare(db)
        with pytest.raises(SchemaError, match="c2b endpoint migrate"):
            jobs.get(db, who.tenant_id, claim.job.id)
        assert migrations.migrate(db) == ("0001", migrations.newest())
        migrations.prepare(db)
        assert everything(db) == before

    def test_the_migrated_tables_are_those_of_the_code(self, db: Database) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.runtime.migration import MigrationContext

        with db.reading() as tx:
            context = MigrationContext.configure(tx.connection, opts={"compare_type": True})
            assert compare_metadata(context, tables.metadata) == []

    def test_a_migration_that_is_interrupted_leaves_the_revision_before(self, db: Database) -> None:
        who = member(db)
        job = submit(db, who)
        migrations.migrate(db, "0001")
        with db.transaction() as tx:  # has the name of the index that the migration creates after the column
            tx.execute(text("CREATE INDEX ix_jobs_stored ON jobs (kind)"))
        with pytest.raises(Exception, match="ix_jobs_stored"):
            migrations.migrate(db)
        assert migrations.revision(db) == "0001"
        with db.transaction() as tx:
            tx.execute(text("DROP INDEX ix_jobs_stored"))
        migrations.migrate(db)
        assert jobs.get(db, who.tenant_id, job.id) == job

    @pytest.mark.parametrize(
        ("before", "to", "after"),
        [
            ("0001", "0002", "add_column"),
            ("0002", "0001", "drop_index"),
            ("0002", "0003", "create_table"),
            ("0003", "0002", "drop_table"),
            ("0003", "0004", "create_table"),
            ("0004", "0003", "drop_table"),
        ],
    )
    def test_a_migration_whose_process_dies_leaves_the_revision_before(
        self, db: Database, before: str, to: str, after: str
    ) -> None:
        job = submit(db, member(db))
        migrations.migrate(db, before)
        url = db.engine.url.render_as_string(hide_password=False)
        died = subprocess.run([sys.executable, "-c", _DIE_MIGRATING, url, to, after], check=False)
        assert died.returncode == 9
        assert migrations.revision(db) == before
        migrations.migrate(db, to)
        migrations.migrate(db)
        assert jobs.get(db, job.tenant_id, job.id) == job

    def test_an_unknown_revision_and_an_unsaid_loss_are_refused(self, db: Database) -> None:
        with pytest.raises(ConfigError, match="not a revision"):
            migrations.migrate(db, "9999")
        with pytest.raises(SchemaError, match="all of the ledger would be lost"):
            migrations.migrate(db, migrations.EMPTY)
        with db.transaction() as tx:
            tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        for refused in (migrations.prepare, migrations.require_current, migrations.migrate):
            with pytest.raises(SchemaError, match="9999, which this version does not know"):
                refused(db)
        with db.transaction() as tx:
            tx.execute(text(f"UPDATE alembic_version SET version_num = '{migrations.newest()}'"))
        migrations.migrate(db, migrations.EMPTY, discard=True)
        assert migrations.revision(db) == migrations.EMPTY
        migrations.prepare(db)

    def test_replicas_that_start_at_once_migrate_once(self, db: Database, open_db: OpenDb) -> None:
        migrations.migrate(db, migrations.EMPTY, discard=True)
        at_once(3, lambda _: migrations.prepare(open_db()))
        assert audit_log.verify(db) is None
        assert member(db)


_DIE_MIGRATING = """
import os, sys
from alembic import op
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.ledger.database import Database
after = sys.argv[3]
done = getattr(op, after)
def die_after(*arguments):
    done(*arguments)
    os._exit(9)
setattr(op, after, die_after)
migrations.migrate(Database(sys.argv[1]), sys.argv[2])
"""
