"""The table of lives."""

from sqlmodel import Field, SQLModel


class InstanceRow(SQLModel, table=True):
    """One life. `id` sorts by time; times are milliseconds since 1970; `document` holds what no query asks for."""

    __tablename__ = "instance"

    id: int = Field(primary_key=True)
    profile_id: str = Field(index=True)
    revision: int
    state: str
    created_at_ms: int
    stopped_at_ms: int | None = None
    document: str


class CalibrationRow(SQLModel, table=True):
    """What a launch really took of one device (the host: `host`) for one term of the plan.

    `device_set` is as in the launch context of requests.
    """

    __tablename__ = "calibration"

    profile_id: str = Field(primary_key=True)
    revision: int = Field(primary_key=True)
    engine_build: str = Field(primary_key=True)
    device_set: str = Field(primary_key=True)
    device: str = Field(primary_key=True)
    term: str = Field(primary_key=True)
    used_bytes: int
