"""Lives that are over, and the present ones as they were last told."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime

from sqlmodel import Session, col, select

from app.database import Database, until_settled
from app.errors import DatabaseUnavailable
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.instances.tables import InstanceRow
from app.instances.told import ToldRecord
from app.instances.unwritten import UnwrittenLives
from app.line_file import LineFile

_log = logging.getLogger(__name__)

_AT_ONCE_MOST = 500
# Longer than the writer waits for company: what it has not written then is copied to the file.
_LATE_SECONDS = 0.075
_RETRY_SECONDS = 1.0


class InstanceArchive:
    """Keeps the record of every life in the database, and until it is there in memory and in `file`.

    The newest record of a life wins, in whatever order they come.
    """

    def __init__(self, database: Database, file: LineFile[ToldRecord] | None = None) -> None:
        self._database = database
        self._unwritten = UnwrittenLives(file)
        self._told = 0
        self._news = asyncio.Event()
        self._is_asked = False
        self._retry_at = 0.0
        # After a piece that the database refuses for what is in it, so many go by themselves.
        self._singly = 0

    def store(self, record: InstanceRecord) -> None:
        """Write the record soon. Never raises: no life ends because it cannot be recorded. On the event loop."""
        try:
            self._told += 1
            self._unwritten.put(ToldRecord.of(record, self._told))
            self._news.set()
            if not self._is_asked:
                self._ask()
        except Exception:
            _log.exception("a record of an instance is not kept")

    def get(self, identifier: int) -> InstanceRecord | None:
        """One life, or None."""
        # In this order: what is written in between is in both.
        unwritten = self._unwritten.get(identifier)
        with self._database.read() as session:
            row = session.get(InstanceRow, identifier)
        told = ToldRecord.read(row.document) if row else None
        if unwritten is not None and unwritten.is_newer_than(told):
            told = unwritten
        return told.record if told else None

    def newest(self, limit: int, before: int | None = None, profile_id: str | None = None) -> Sequence[InstanceRecord]:
        """Up to `limit` lives, newest first; only older ones than `before`, only of one profile."""
        query = select(InstanceRow).order_by(col(InstanceRow.id).desc()).limit(limit)
        if before is not None:
            query = query.where(col(InstanceRow.id) < before)
        if profile_id is not None:
            query = query.where(InstanceRow.profile_id == profile_id)
        unwritten = self._unwritten.all()
        with self._database.read() as session:
            found = {row.id: ToldRecord.read(row.document) for row in session.exec(query)}
        for identifier, told in unwritten.items():
            is_asked_for = (before is None or identifier < before) and profile_id in (None, told.record.profile_id)
            if is_asked_for and told.is_newer_than(found.get(identifier)):
                found[identifier] = told
        return [found[identifier].record for identifier in sorted(found, reverse=True)[:limit]]

    async def close_earlier_lives(self) -> None:
        """Take what an earlier run left in the file, and mark as failed what it did not see end.

        It was killed then, and its children with it. Raises DatabaseUnavailable.
        """
        for told in await asyncio.to_thread(self._unwritten.open):
            self._unwritten.put(told.ended_unseen())
        if len(self._unwritten):
            _log.info("%d instances of an earlier run are not as they ended in the database yet", len(self._unwritten))
            self._news.set()
            self._ask()
        await self._database.write(_close_earlier_lives)

    async def run(self) -> None:
        """Copy to the file what the database does not take in time, and ask it again; until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while len(self._unwritten):
                await asyncio.sleep(_LATE_SECONDS)
                await asyncio.to_thread(self._unwritten.copy)
                if not self._is_asked and time.monotonic() >= self._retry_at:
                    self._ask()

    async def close(self) -> None:
        """Try once more, and leave the rest to the next start. Nothing may be stored afterwards."""
        if len(self._unwritten) and (asked := self._ask(urgent=True)) is not None:
            await until_settled(asked)
        await asyncio.to_thread(self._unwritten.close)

    def _ask(self, *, urgent: bool = False) -> "Future[None] | None":
        """Queue one piece of work that takes what waits; None where the database is closed."""
        self._is_asked = True
        batch: list[ToldRecord] = []
        try:
            return self._database.submit(
                lambda session: self._write(session, batch),
                urgent=urgent,
                settled=lambda done: self._settle(done, batch),
            )
        except DatabaseUnavailable:
            self._is_asked = False
            return None

    def _write(self, session: Session, batch: list[ToldRecord]) -> None:
        """On the writer thread."""
        self._is_asked = False
        batch.extend(self._unwritten.first(1 if self._singly else _AT_ONCE_MOST))
        for told in batch:
            _put(session, told)

    def _settle(self, done: "Future[None]", batch: Sequence[ToldRecord]) -> None:
        """After COMMIT or rollback."""
        self._is_asked = False
        failure = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(failure, DatabaseUnavailable):
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        elif failure is not None and len(batch) > 1:
            self._singly = len(batch)
        else:
            if failure is not None:
                _log.error("the record of an instance cannot be written: %s", failure, exc_info=failure)
            self._singly = max(self._singly - 1, 0)
            self._unwritten.done(batch)


def _put(session: Session, told: ToldRecord) -> None:
    """Write a record where there is none that is as new."""
    row = session.get(InstanceRow, told.record.id)
    if row is not None and not told.is_newer_than(ToldRecord.read(row.document)):
        return
    record = told.record
    session.merge(
        InstanceRow(
            id=record.id,
            profile_id=record.profile_id,
            revision=record.revision,
            state=record.state.value,
            created_at_ms=_milliseconds(record.created_at),
            stopped_at_ms=_milliseconds(record.stopped_at) if record.stopped_at else None,
            document=told.document,
        )
    )


def _close_earlier_lives(session: Session) -> None:
    terminal = [state.value for state in InstanceState if state.is_terminal]
    for row in session.exec(select(InstanceRow).where(col(InstanceRow.state).not_in(terminal))):
        told = ToldRecord.read(row.document).ended_unseen()
        row.state, row.document = told.record.state.value, told.document
        session.add(row)


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
