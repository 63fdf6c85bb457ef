"""Launch profiles and every revision they ever had."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profile",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=True),
        sa.Column("created_at_milliseconds", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at_milliseconds", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_profile"),
    )
    op.create_table(
        "profile_revision",
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at_milliseconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("profile_id", "revision", name="pk_profile_revision"),
        sa.ForeignKeyConstraint(["profile_id"], ["profile.id"], name="fk_profile_revision_profile_id_profile"),
    )


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
