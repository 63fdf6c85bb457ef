"""Ids that clients give to their requests, as they are stored: a UUID as its 16 bytes, any other as its text.

Every client may send one with every request, and then it is the largest part of a row.
"""

from typing import Any

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

CLIENT_ID_MOST = 200
# What the index holds of an id. Of a UUID bytes that differ in every version: its ends can be those of a clock or of a
# machine, which many share. Of a text both ends, since those of some programs begin alike, and of others end alike.
CLIENT_KEY_SQL = (
    "CASE typeof(client_request_id) WHEN 'blob' THEN substr(client_request_id, 3, 4) "
    "ELSE substr(client_request_id, 1, 4) || substr(client_request_id, -6) END"
)
_HEX = frozenset("0123456789abcdef")


class ClientId(TypeDecorator[str]):
    """A column of such ids; in Python they are texts."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """What is stored."""
        return None if value is None else packed(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """What was given."""
        return unpacked(value) if isinstance(value, bytes) else value


def packed(text: str) -> str | bytes:
    """An id as it is stored, at most CLIENT_ID_MOST characters of it; `unpacked` gives the bytes' text again."""
    if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
        digits = text.replace("-", "")
        if len(digits) == 32 and _HEX.issuperset(digits):
            return bytes.fromhex(digits)
    return text[:CLIENT_ID_MOST]


def unpacked(stored: bytes) -> str:
    """The text of a UUID."""
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def client_key(stored: str | bytes) -> str | bytes:
    """What CLIENT_KEY_SQL makes of a stored id."""
    return stored[2:6] if isinstance(stored, bytes) else stored[:4] + stored[-6:]
