"""Lives that are over, and the present ones as they were last written."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from app.database import Database
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.instances.tables import InstanceRow

_TIMES = ("created_at", "ready_at", "stopped_at")


class InstanceArchive:
    """Keeps the record of every life in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def store(self, record: InstanceRecord) -> None:
        """Write the record soon; the newest one of each life wins."""
        row = _row(record)
        self._database.submit(lambda session: _merge(session, row), urgent=False)

    def get(self, identifier: int) -> InstanceRecord | None:
        """One life, or None."""
        with self._database.read() as session:
            row = session.get(InstanceRow, identifier)
            return _record(row) if row else None

    def newest(self, limit: int, before: int | None = None, profile_id: str | None = None) -> Sequence[InstanceRecord]:
        """Up to `limit` lives, newest first; only older ones than `before`, only of one profile."""
        query = select(InstanceRow).order_by(col(InstanceRow.id).desc()).limit(limit)
        if before is not None:
            query = query.where(col(InstanceRow.id) < before)
        if profile_id is not None:
            query = query.where(InstanceRow.profile_id == profile_id)
        with self._database.read() as session:
            return [_record(row) for row in session.exec(query)]

    async def close_earlier_lives(self) -> None:
        """Mark as failed what an earlier run of the service did not see end (it was killed; its children with it)."""
        await self._database.write(_close_earlier_lives)


def _merge(session: Session, row: InstanceRow) -> None:
    session.merge(row)


def _close_earlier_lives(session: Session) -> None:
    terminal = [state.value for state in InstanceState if state.is_terminal]
    for row in session.exec(select(InstanceRow).where(col(InstanceRow.state).not_in(terminal))):
        document = json.loads(row.document)
        row.state = document["state"] = InstanceState.FAILED.value
        document.update(reason="service-ended", pid=None, leases=0)
        row.document = json.dumps(document)
        session.add(row)


def _row(record: InstanceRecord) -> InstanceRow:
    document: dict[str, Any] = asdict(record)
    for name in _TIMES:
        document[name] = document[name].isoformat() if document[name] else None
    return InstanceRow(
        id=record.id,
        profile_id=record.profile_id,
        revision=record.revision,
        state=record.state.value,
        created_at_ms=_milliseconds(record.created_at),
        stopped_at_ms=_milliseconds(record.stopped_at) if record.stopped_at else None,
        document=json.dumps(document),
    )


def _record(row: InstanceRow) -> InstanceRecord:
    document = json.loads(row.document)
    for name in _TIMES:
        document[name] = datetime.fromisoformat(document[name]) if document[name] else None
    document["state"] = InstanceState(document["state"])
    return InstanceRecord(**document)


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
