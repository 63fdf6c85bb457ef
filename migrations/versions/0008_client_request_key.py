"""Ids that clients give: UUIDs as their bytes, and an index of a few characters of each instead of all."""

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_KEY = (
    "CASE typeof(client_request_id) WHEN 'blob' THEN substr(client_request_id, 3, 4) "
    "ELSE substr(client_request_id, 1, 4) || substr(client_request_id, -6) END"
)


def upgrade() -> None:
    op.drop_index("ix_request_client_request_id", "request")
    driver: Any = op.get_bind().connection.dbapi_connection
    # SQLite learned to read hexadecimal digits with 3.41 only.
    driver.create_function("uuid_bytes", 1, _packed, deterministic=True)
    op.execute(
        "UPDATE request SET client_request_id = uuid_bytes(client_request_id) WHERE length(client_request_id) = 36"
    )
    op.add_column("request", sa.Column("client_request_key", sa.Text(), sa.Computed(_KEY, persisted=False)))
    op.create_index(
        "ix_request_client_request_key",
        "request",
        ["client_request_key"],
        sqlite_where=sa.text("client_request_id IS NOT NULL"),
    )


def _packed(text: str) -> str | bytes:
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else text


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
