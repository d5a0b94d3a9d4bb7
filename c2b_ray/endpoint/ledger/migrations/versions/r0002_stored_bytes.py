"""Adds the bytes that the runs of jobs hold on the store, for the quota of bytes. The downgrade drops them; runs report
them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    stored = sa.text("bytes > 0")
    op.create_index("ix_jobs_stored", "jobs", ["tenant_id", "bytes"], postgresql_where=stored, sqlite_where=stored)


def downgrade() -> None:
    op.drop_index("ix_jobs_stored", "jobs")
    op.drop_column("jobs", "bytes")
