"""Keys, without their secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access_key",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("profiles", sa.Text(), nullable=True),
        sa.Column("created_at_milliseconds", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_milliseconds", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at_milliseconds", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_access_key"),
        sa.UniqueConstraint("key_id", name="uq_access_key_key_id"),
    )


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
