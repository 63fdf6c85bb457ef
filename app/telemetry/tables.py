"""The tables of recorded requests.

A row of `request` is integers only, plus the client's own id where it sent one: whatever repeats (who served it, the
name it asked for, why it was routed there, what went wrong) is interned once and pointed at. Absent is NULL.
"""

from sqlalchemy import Index, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel


class LaunchContextRow(SQLModel, table=True):
    """What requests were served by. All but the profile is NULL for requests that no instance took.

    The writer keeps those unique as well: SQL does not, since there NULL differs from NULL.
    """

    __tablename__ = "launch_context"
    __table_args__ = (
        UniqueConstraint(
            "profile_id",
            "revision",
            "engine_build",
            "argv_hash",
            "device_set",
            "method",
            name="uq_launch_context_profile_id",
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    profile_id: str = Field(sa_type=Text)
    revision: int | None = None
    engine_build: str | None = Field(default=None, sa_type=Text)
    argv_hash: str | None = Field(default=None, sa_type=Text)
    device_set: str | None = Field(default=None, sa_type=Text)
    method: str | None = Field(default=None, sa_type=Text)


class LabelRow(SQLModel, table=True):
    """A text that many rows share. Never deleted: the recorder remembers the numbers."""

    __tablename__ = "label"

    id: int | None = Field(default=None, primary_key=True)
    text: str = Field(unique=True, sa_type=Text)


class RequestRow(SQLModel, table=True):
    """One finished request. The id orders by time, so neither newest-first nor a time range needs an index.

    `*_label` points at `label`, without a foreign key: five look-ups for each row would buy nothing, since labels
    stay. `*_code` is a number of app/telemetry/codes.py. Durations are microseconds.
    """

    __tablename__ = "request"
    __table_args__ = (
        # SQLite appends the row's id to every index, so this one orders the requests of a context by time.
        Index("ix_request_context_id", "context_id"),
        Index(
            "ix_request_client_request_id",
            "client_request_id",
            sqlite_where=text("client_request_id IS NOT NULL"),
        ),
    )

    id: int = Field(primary_key=True)
    context_id: int | None = Field(default=None, foreign_key="launch_context.id")
    instance_id: int | None = None
    requested_model_label: int | None = None
    route_reason_label: int | None = None
    endpoint_code: int
    stream: bool
    outcome_code: int
    status_code: int | None = None
    error_label: int | None = None
    queue_us: int | None = None
    time_to_first_token_us: int | None = None
    duration_us: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    prompt_us: int | None = None
    generation_us: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    category_code: int | None = None
    finish_reason_label: int | None = None
    client_label: int | None = None
    client_request_id: str | None = Field(default=None, sa_type=Text)
