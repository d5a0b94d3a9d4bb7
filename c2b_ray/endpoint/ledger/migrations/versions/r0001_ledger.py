"""The tables of the first ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TABLES = (
    "audit_head", "audit_log", "deliveries", "webhooks", "leases", "uploads", "buckets", "usage", "events",
    "idempotency", "jobs", "keys", "tenants",
)  # fmt: skip
_COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ZERO, _NO = sa.text("0"), sa.text("false")


def upgrade() -> None:
    _who()
    _jobs()
    _about_jobs()
    _use()
    _webhooks()
    _audit_log()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)


def _who() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("weight", sa.Double, nullable=False, server_default=sa.text("1")),
        sa.Column("quotas", sa.JSON, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
        sa.Column("last_used", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.UniqueConstraint("prefix", name="uq_keys_prefix"),
        _of_tenant("keys"),
    )
    op.create_index("ix_keys_tenant_id", "keys", ["tenant_id"])


def _jobs() -> None:
    counts = [sa.Column(name, sa.BigInteger) for name in ("done", "total")]
    times = [sa.Column(name, sa.Double) for name in ("lease_until", "lease_seconds", "granted", "not_before")]
    op.create_table(
        "jobs",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("id", "tenant_id", "kind", "state")),
        *(sa.Column(name, sa.Text) for name in ("key_id", "name", "stage", "owner", "run_path", "classifier_hash")),
        *(sa.Column(name, sa.JSON, nullable=False) for name in ("config", "resolved")),
        sa.Column("created", sa.Double, nullable=False),
        *(sa.Column(name, sa.Double) for name in ("started", "ended", "rate", "seconds_left", "deleted")),
        *counts,
        *times,
        sa.Column("images", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("model_seconds", sa.Double, nullable=False, server_default=_ZERO),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("slices", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("yield_requested", sa.Boolean, nullable=False, server_default=_NO),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=_NO),
        sa.Column("failure", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        _of_tenant("jobs"),
    )
    op.create_index("ix_jobs_tenant_created", "jobs", ["tenant_id", "created", "id"])
    op.create_index("ix_jobs_tenant_classifier", "jobs", ["tenant_id", "classifier_hash", "created"])
    waits_or_runs = sa.text("state IN ('queued', 'running')")
    op.create_index(
        "ix_jobs_open", "jobs", ["tenant_id", "state"], postgresql_where=waits_or_runs, sqlite_where=waits_or_runs
    )


def _about_jobs() -> None:
    op.create_table(
        "idempotency",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tenant_id", "key", "body_hash", "job_id")),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key", name="pk_idempotency"),
        _of_tenant("idempotency"),
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created"])
    op.create_table(
        "events",
        sa.Column("id", _COUNTED, nullable=False, autoincrement=True),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job_id_id", "events", ["job_id", "id"])


def _use() -> None:
    op.create_table(
        "usage",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tenant_id", "key_id", "model", "day")),
        sa.Column("images", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("model_seconds", sa.Double, nullable=False, server_default=_ZERO),
        sa.Column("requests", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.PrimaryKeyConstraint("tenant_id", "day", "model", "key_id", name="pk_usage"),
        _of_tenant("usage"),
    )
    op.create_table(
        "buckets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tokens", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_buckets"),
    )
    op.create_table(
        "uploads",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tenant_id", "sha256", "kind")),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("meta", sa.JSON, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", name="pk_uploads"),
        _of_tenant("uploads"),
    )
    op.create_table(
        "leases",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "owner")),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("until", "seconds")),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("id", "tenant_id", "url", "secret")),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        _of_tenant("webhooks"),
    )
    op.create_index("ix_webhooks_tenant_id", "webhooks", ["tenant_id"])
    op.create_table(
        "deliveries",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("id", "webhook_id", "job_id", "state")),
        sa.Column("event_id", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name="fk_deliveries_webhook_id", ondelete="CASCADE"),
    )
    pending = sa.text("state = 'pending'")
    op.create_index("ix_deliveries_pending", "deliveries", ["next_at"], postgresql_where=pending, sqlite_where=pending)
    op.create_index("ix_deliveries_webhook_id", "deliveries", ["webhook_id"])
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"])


def _audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("actor", "action", "data", "previous", "hash")),
        *(sa.Column(name, sa.Text) for name in ("tenant_id", "subject")),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_tenant", "audit_log", ["tenant_id", "seq"])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.bulk_insert(head, [{"id": 1, "seq": 0, "hash": "0" * 64}])


def _of_tenant(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id")
