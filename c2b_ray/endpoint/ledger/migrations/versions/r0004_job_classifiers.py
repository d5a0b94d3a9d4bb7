"""Adds the hash of each classifier of a job that has several. The downgrade drops them: such a job is then found by the
hash of all its classifiers alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "job_classifiers",
        sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id", name="fk_job_classifiers_job_id"), nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "hash", name="pk_job_classifiers"),
    )
    op.create_index("ix_job_classifiers_hash", "job_classifiers", ["hash"])


def downgrade() -> None:
    op.drop_table("job_classifiers")
