"""What engines counted of their drafts, from one reading to the next."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "acceptance_window",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("started_at_milliseconds", sa.Integer(), nullable=False),
        sa.Column("ended_at_milliseconds", sa.Integer(), nullable=False),
        sa.Column("drafts", sa.Integer(), nullable=True),
        sa.Column("draft_tokens", sa.Integer(), nullable=True),
        sa.Column("accepted_tokens", sa.Integer(), nullable=True),
        sa.Column("accepted_by_position", sa.Text(), nullable=True),
        sa.Column("generated_tokens", sa.Integer(), nullable=True),
        sa.Column("generation_us", sa.Integer(), nullable=True),
        sa.Column("rounded_to", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["context_id"], ["launch_context.id"], name="fk_acceptance_window_context_id_launch_context"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_acceptance_window"),
    )
    op.create_index("ix_acceptance_window_context_id", "acceptance_window", ["context_id"])


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
