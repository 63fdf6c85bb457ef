"""Rows of launch profiles. Revisions are kept for ever, also when their profile is deleted."""

from sqlalchemy import BigInteger, Text
from sqlmodel import Field, SQLModel


class ProfileRow(SQLModel, table=True):
    """One profile id. A deleted one keeps its row, so that a later one of the same id continues its numbering.

    `created_at_milliseconds` is the start of its present life, `managed_by` the name of the file that owns it.
    """

    __tablename__ = "profile"

    id: str = Field(primary_key=True, sa_type=Text)
    revision: int
    managed_by: str | None = Field(default=None, sa_type=Text)
    created_at_milliseconds: int = Field(sa_type=BigInteger)
    deleted_at_milliseconds: int | None = Field(default=None, sa_type=BigInteger)


class ProfileRevisionRow(SQLModel, table=True):
    """What a profile said at one revision, as a JSON document."""

    __tablename__ = "profile_revision"

    profile_id: str = Field(primary_key=True, foreign_key="profile.id", sa_type=Text)
    revision: int = Field(primary_key=True)
    document: str = Field(sa_type=Text)
    created_at_milliseconds: int = Field(sa_type=BigInteger)
