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
