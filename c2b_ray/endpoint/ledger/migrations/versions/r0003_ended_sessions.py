"""Adds the sessions of the web pages that were signed out. The downgrade forgets them: their cookies work again until
they expire."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ended_sessions"),
    )


def downgrade() -> None:
    op.drop_table("ended_sessions")
