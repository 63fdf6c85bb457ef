"""Keys as rows, and back. Every function runs in a session of the database."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session, col, delete, select, update

from app.access.key import Key, KeyKind
from app.access.tables import KeyRow


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with what recognises it."""

    key: Key
    key_id: str
    digest: bytes


def read_keys(session: Session) -> Sequence[StoredKey]:
    """Every key."""
    return [_stored(row) for row in session.exec(select(KeyRow))]


def add_key(session: Session, stored: StoredKey) -> None:
    """A new row."""
    key = stored.key
    assert key.created_at is not None  # noqa: S101 - only the key of the settings has none, and that has no row
    session.add(
        KeyRow(
            name=key.name,
            key_id=stored.key_id,
            kind=key.kind.value,
            digest=stored.digest.hex(),
            profiles=None if key.profiles is None else json.dumps(sorted(key.profiles)),
            created_at_milliseconds=_milliseconds(key.created_at),
            expires_at_milliseconds=_milliseconds(key.expires_at) if key.expires_at else None,
        )
    )


def remove_key(session: Session, key_id: str) -> None:
    """The row is gone, and with it the digest."""
    session.exec(delete(KeyRow).where(col(KeyRow.key_id) == key_id))


def note_use(session: Session, key_id: str, at: datetime) -> None:
    """The key was used; one that is gone meanwhile stays so."""
    values = {"last_used_at_milliseconds": _milliseconds(at)}
    session.exec(update(KeyRow).where(col(KeyRow.key_id) == key_id).values(**values))


def _stored(row: KeyRow) -> StoredKey:
    key = Key(
        name=row.name,
        kind=KeyKind(row.kind),
        profiles=None if row.profiles is None else frozenset(json.loads(row.profiles)),
        created_at=_time(row.created_at_milliseconds),
        expires_at=_time(row.expires_at_milliseconds),
        last_used_at=_time(row.last_used_at_milliseconds),
    )
    return StoredKey(key, row.key_id, bytes.fromhex(row.digest))


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
