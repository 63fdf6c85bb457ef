"""What launches really took of each device."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = ("profile_id", "revision", "engine_build", "device_set", "device", "term")


def upgrade() -> None:
    op.create_table(
        "calibration",
        *(sa.Column(name, sa.Integer() if name == "revision" else sa.String(), nullable=False) for name in _KEY),
        sa.Column("used_bytes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(*_KEY, name="pk_calibration"),
    )


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
