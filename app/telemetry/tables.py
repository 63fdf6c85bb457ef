"""The tables of recorded requests.

A row of `request` is integers only, plus the client's own id where it sent one: whatever repeats (who served it, the
name it asked for, why it was routed there, what went wrong) is interned once and pointed at. Absent is NULL.
"""

from sqlalchemy import Column, Computed, Index, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from app.telemetry.client_ids import CLIENT_KEY_SQL, ClientId


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
    """A text that many rows share. The recorder remembers the numbers: only what it knows of may delete one."""

    __tablename__ = "label"

    id: int | None = Field(default=None, primary_key=True)
    text: str = Field(unique=True, sa_type=Text)


class RequestRow(SQLModel, table=True):
    """One finished request. The id orders by time, so neither newest-first nor a time range needs an index.

    `*_label` points at `label`, without a foreign key: five look-ups for each row would buy nothing, since labels
    stay as long as rows have them. `*_code` is a number of app/telemetry/codes.py. Durations are microseconds.
    """

    __tablename__ = "request"
    __table_args__ = (
        # SQLite appends the row's id to every index, so this one orders the requests of a context by time.
        Index("ix_request_context_id", "context_id"),
        Index(
            "ix_request_client_request_key",
            "client_request_key",
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
    client_request_id: str | None = Field(default=None, sa_type=ClientId)
    # Only the index has it: one of whole ids would be a quarter of the file.
    client_request_key: str | None = Field(
        default=None, sa_column=Column(Text, Computed(CLIENT_KEY_SQL, persisted=False))
    )


class AcceptanceWindowRow(SQLModel, table=True):
    """What an engine counted of its drafts from one reading to the next. The id is of the moment of the later one.

    `accepted_by_position` is a JSON list of integers. `rounded_to` is the least step in which the three counts of
    drafts were told: 1 where they are exact.
    """

    __tablename__ = "acceptance_window"

    id: int = Field(primary_key=True)
    # SQLite appends the row's id to every index, so this one orders the windows of a context by time.
    context_id: int = Field(foreign_key="launch_context.id", index=True)
    instance_id: int
    started_at_milliseconds: int
    ended_at_milliseconds: int
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_by_position: str | None = Field(default=None, sa_type=Text)
    generated_tokens: int | None = None
    generation_us: int | None = None
    rounded_to: int


class RollupRow(SQLModel, table=True):
    """Sums of the requests of one context, category and outcome that came in an hour, or in a day (`hours` 24).

    `first_hour` counts hours since 1970; days are those of UTC. A sum is NULL where no request reported it.
    `histograms` is what `app/telemetry/cells.py` makes of them.
    """

    __tablename__ = "request_rollup"
    __table_args__ = (Index("ix_request_rollup_hours", "hours", "first_hour"),)

    id: int | None = Field(default=None, primary_key=True)
    hours: int
    first_hour: int
    context_id: int | None = Field(default=None, foreign_key="launch_context.id")
    category_code: int | None = None
    outcome_code: int
    requests: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    timed_tokens: int | None = None
    timed_us: int | None = None
    histograms: bytes


class LateRequestRow(SQLModel, table=True):
    """A row of `request` that came after its hour was closed, and is not in the roll-ups yet."""

    __tablename__ = "request_late"

    id: int = Field(primary_key=True)


class RollupStateRow(SQLModel, table=True):
    """How far the roll-ups are, in hours since 1970; one row. Hours before `closed_hour` take late rows only, those
    before `rolled_hour` are rolled up, and of those before `kept_hour` rows may be gone.
    """

    __tablename__ = "rollup_state"

    id: int = Field(primary_key=True)
    closed_hour: int
    rolled_hour: int
    kept_hour: int
