"""Sums of recorded requests by hours and days, which stay when the rows go."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request_rollup",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hours", sa.Integer(), nullable=False),
        sa.Column("first_hour", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=True),
        sa.Column("category_code", sa.Integer(), nullable=True),
        sa.Column("outcome_code", sa.Integer(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("generated_tokens", sa.Integer(), nullable=True),
        sa.Column("draft_tokens", sa.Integer(), nullable=True),
        sa.Column("accepted_tokens", sa.Integer(), nullable=True),
        sa.Column("timed_tokens", sa.Integer(), nullable=True),
        sa.Column("timed_us", sa.Integer(), nullable=True),
        sa.Column("histograms", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["context_id"], ["launch_context.id"], name="fk_request_rollup_context_id_launch_context"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_request_rollup"),
    )
    op.create_index("ix_request_rollup_hours", "request_rollup", ["hours", "first_hour"])
    op.create_table(
        "request_late",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_request_late"),
    )
    state = op.create_table(
        "rollup_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("closed_hour", sa.Integer(), nullable=False),
        sa.Column("rolled_hour", sa.Integer(), nullable=False),
        sa.Column("kept_hour", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rollup_state"),
    )
    op.bulk_insert(state, [{"id": 1, "closed_hour": 0, "rolled_hour": 0, "kept_hour": 0}])


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
