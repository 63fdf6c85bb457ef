"""Recorded requests, what served them, and the texts that they share."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "launch_context",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("engine_build", sa.Text(), nullable=True),
        sa.Column("argv_hash", sa.Text(), nullable=True),
        sa.Column("device_set", sa.Text(), nullable=True),
        sa.Column("method", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_launch_context"),
        sa.UniqueConstraint(
            "profile_id",
            "revision",
            "engine_build",
            "argv_hash",
            "device_set",
            "method",
            name="uq_launch_context_profile_id",
        ),
    )
    op.create_table(
        "label",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_label"),
        sa.UniqueConstraint("text", name="uq_label_text"),
    )
    op.create_table(
        "request",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=True),
        sa.Column("instance_id", sa.Integer(), nullable=True),
        sa.Column("requested_model_label", sa.Integer(), nullable=True),
        sa.Column("route_reason_label", sa.Integer(), nullable=True),
        sa.Column("endpoint_code", sa.Integer(), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("outcome_code", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error_label", sa.Integer(), nullable=True),
        sa.Column("queue_us", sa.Integer(), nullable=True),
        sa.Column("time_to_first_token_us", sa.Integer(), nullable=True),
        sa.Column("duration_us", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("generated_tokens", sa.Integer(), nullable=True),
        sa.Column("prompt_us", sa.Integer(), nullable=True),
        sa.Column("generation_us", sa.Integer(), nullable=True),
        sa.Column("draft_tokens", sa.Integer(), nullable=True),
        sa.Column("accepted_tokens", sa.Integer(), nullable=True),
        sa.Column("category_code", sa.Integer(), nullable=True),
        sa.Column("finish_reason_label", sa.Integer(), nullable=True),
        sa.Column("client_label", sa.Integer(), nullable=True),
        sa.Column("client_request_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_request"),
        sa.ForeignKeyConstraint(["context_id"], ["launch_context.id"], name="fk_request_context_id_launch_context"),
    )
    op.create_index("ix_request_context_id", "request", ["context_id"])
    op.create_index(
        "ix_request_client_request_id",
        "request",
        ["client_request_id"],
        sqlite_where=sa.text("client_request_id IS NOT NULL"),
    )


def downgrade() -> None:
    raise NotImplementedError("there is no way back to older tables: restore a copy of the database file")
