"""The table of keys."""

from sqlalchemy import BigInteger, Text
from sqlmodel import Field, SQLModel


class KeyRow(SQLModel, table=True):
    """One key. `digest` is the SHA-256 of what a client shows, in hexadecimal digits: the secret itself is nowhere.

    `profiles` is a JSON list of ids, NULL for all.
    """

    __tablename__ = "access_key"

    name: str = Field(primary_key=True, sa_type=Text)
    key_id: str = Field(unique=True, sa_type=Text)
    kind: str = Field(sa_type=Text)
    digest: str = Field(sa_type=Text)
    profiles: str | None = Field(default=None, sa_type=Text)
    created_at_milliseconds: int = Field(sa_type=BigInteger)
    expires_at_milliseconds: int | None = Field(default=None, sa_type=BigInteger)
    last_used_at_milliseconds: int | None = Field(default=None, sa_type=BigInteger)
