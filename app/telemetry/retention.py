"""How long rows of requests are kept: so many days, and so many bytes; what they add up to stays in the roll-ups.

All in small pieces, on the writer thread between the pieces of others, with pauses: a stream does not notice.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col

from app.database import Database
from app.errors import DatabaseUnavailable
from app.identifiers import IDS_PER_HOUR
from app.telemetry.rollup import HOURS_PER_DAY, Rollup, rollup_state, set_state
from app.telemetry.tables import RequestRow

T = TypeVar("T")

_log = logging.getLogger(__name__)

# What ends within a minute of its hour need not be added later.
_AFTER_THE_HOUR_SECONDS = 60
_RETRY_SECONDS = 60
_PIECE_ROWS = 250
_PIECE_PAGES = 64
_PAUSE_SECONDS = 0.005
# Free pages are used again, so only a part that is out of proportion is given back.
_FREE_PAGES_MOST = 256
_FREE_SHARE_MOST = 0.1

_DELETE = (
    "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE id < ? AND id NOT IN (SELECT id FROM request_late) "
    "ORDER BY id LIMIT ?)"
)


class _Stopped(Exception):
    """The service ends."""


class Retention:
    """Rolls up and deletes rows of `database`, every hour. 0 days and 0 bytes are no limit.

    `bytes_most` counts all that is in the file, and only rows of whole hours that are rolled up can go. `clock` answers
    seconds since 1970.
    """

    def __init__(
        self, database: Database, *, days: float, bytes_most: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._days = days
        self._bytes_most = bytes_most
        self._clock = clock
        self._is_stopped = threading.Event()
        self._rollup = Rollup(database, self._pause)

    async def run(self) -> None:
        """Until cancelled: now, and after every hour."""
        try:
            while True:
                pause_seconds = 3600 - self._clock() % 3600 + _AFTER_THE_HOUR_SECONDS
                try:
                    await asyncio.to_thread(self.keep_up)
                except (DatabaseUnavailable, SQLAlchemyError) as failure:
                    _log.warning("recorded requests are not rolled up now: %s", failure)
                    pause_seconds = _RETRY_SECONDS
                await asyncio.sleep(pause_seconds)
        finally:
            # A thread cannot be cancelled.
            self._is_stopped.set()

    def keep_up(self) -> None:
        """Once: roll up, delete, and give space back. Raises DatabaseUnavailable. Takes a thread of its own."""
        hour = int(self._clock()) // 3600
        try:
            self._rollup.roll(hour)
            if self._days:
                self._delete_before(hour - round(self._days * HOURS_PER_DAY))
            if self._bytes_most:
                self._shrink()
            self._give_back()
        except _Stopped:
            pass

    def _shrink(self) -> None:
        while self._used_bytes() > self._bytes_most:
            with self._database.read() as session:
                oldest = session.execute(select(func.min(col(RequestRow.id)))).scalar()
                rolled_hour = rollup_state(session).rolled_hour
            if oldest is None or oldest // IDS_PER_HOUR >= rolled_hour:
                _log.warning("the database has more than PACELINE_RETENTION_BYTES, and nothing in it can go")
                return
            self._delete_before(oldest // IDS_PER_HOUR + 1)

    def _delete_before(self, hour: int) -> None:
        """Delete the rows of earlier hours, as far as they are rolled up."""
        with self._database.read() as session:
            state = rollup_state(session)
            oldest = session.execute(select(func.min(col(RequestRow.id)))).scalar()
        hour = min(hour, state.rolled_hour)
        if oldest is None or oldest // IDS_PER_HOUR >= hour:
            return
        # First of all nobody may count on them.
        self._write(lambda session: set_state(session, kept_hour=max(hour, state.kept_hour)))
        total = 0
        while count := self._write(lambda session: _delete(session, hour * IDS_PER_HOUR)):
            total += count
            self._pause(_PAUSE_SECONDS)
        _log.info("%d requests are kept as roll-ups only", total)

    def _give_back(self) -> None:
        with self._database.read() as session:
            is_incremental = _pragma(session, "auto_vacuum") == 2
            pages, free = _pragma(session, "page_count"), _pragma(session, "freelist_count")
        if not is_incremental or free <= max(_FREE_PAGES_MOST, pages * _FREE_SHARE_MOST):
            return
        for _ in range(0, free, _PIECE_PAGES):
            self._write(_vacuum)
            self._pause(_PAUSE_SECONDS)

    def _used_bytes(self) -> int:
        with self._database.read() as session:
            pages = _pragma(session, "page_count") - _pragma(session, "freelist_count")
            return pages * _pragma(session, "page_size")

    def _write(self, work: Callable[[Session], T]) -> T:
        return self._database.submit(work).result()

    def _pause(self, seconds: float) -> None:
        if self._is_stopped.wait(seconds):
            raise _Stopped


def _delete(session: Session, end_id: int) -> int:
    return session.connection().exec_driver_sql(_DELETE, (end_id, _PIECE_ROWS)).rowcount


def _vacuum(session: Session) -> None:
    # Python's sqlite3 takes one step of a statement without columns, which here is one page.
    for _ in range(_PIECE_PAGES):
        session.connection().exec_driver_sql("PRAGMA incremental_vacuum(1)").close()


def _pragma(session: Session, name: str) -> int:
    return int(session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one())
