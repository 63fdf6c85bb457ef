"""How long rows of requests are kept: so many days, and so many bytes; what they add up to stays in the roll-ups.

With them go the texts that no row has any more, and lives of instances that ended before the oldest of them.

All in small pieces, on the writer thread between the pieces of others, with pauses: a stream does not notice.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.database import Database
from app.errors import DatabaseUnavailable
from app.findings import Finding
from app.identifiers import IDS_PER_HOUR
from app.instances.old_lives import delete_old_lives
from app.telemetry.hourly import Hourly
from app.telemetry.interning import Labels
from app.telemetry.rollup import HOURS_PER_DAY, Rollup, rollup_state, set_state
from app.telemetry.tables import RequestRow
from app.telemetry.unused_labels import UnusedLabels

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PIECE_ROWS = 250
_PIECE_LIVES = 50
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

    `bytes_most` counts all that is in the file, and only rows of whole hours that are rolled up can go. `labels` is
    what gives rows their labels; without it all labels stay. `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        *,
        days: float,
        bytes_most: int,
        labels: Labels | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._days = days
        self._bytes_most = bytes_most
        self._clock = clock
        self._is_stopped = threading.Event()
        self._rollup = Rollup(database, self._pause)
        self._unused = None if labels is None else UnusedLabels(database, labels, self._pause)
        self._hourly = Hourly(
            "rolling up recorded requests and deleting old ones", lambda: asyncio.to_thread(self.keep_up), clock=clock
        )

    async def run(self) -> None:
        """Until cancelled: now, and after every hour."""
        try:
            await self._hourly.run()
        finally:
            # A thread cannot be cancelled.
            self._is_stopped.set()

    def findings(self) -> Sequence[Finding]:
        """That it failed, until it succeeds."""
        return self._hourly.findings()

    def keep_up(self) -> None:
        """Once: roll up, delete, and give space back. Takes a thread of its own.

        Raises DatabaseUnavailable at once, and whatever else is in the way when all that it leaves is done.
        """
        hour = int(self._clock()) // 3600
        failure: Exception | None = None
        for step in (self._roll, self._delete_old, self._shrink, self._give_back):
            try:
                step(hour)
            except _Stopped:
                return
            except DatabaseUnavailable:
                raise
            except Exception as raised:
                failure = failure or raised
        if failure is not None:
            raise failure

    def _roll(self, hour: int) -> None:
        self._rollup.roll(hour)

    def _delete_old(self, hour: int) -> None:
        oldest_hour = max(hour - math.ceil(self._days * HOURS_PER_DAY), 0) if self._days else 0
        self._delete_before(oldest_hour)
        self._delete_labels()
        self._delete_lives(oldest_hour)

    def _shrink(self, _: int) -> None:
        while self._bytes_most and self._used_bytes() > self._bytes_most:
            if self._delete_labels():
                continue
            if self._delete_oldest_hour():
                self._delete_lives(0)
            elif not self._delete_labels(at_last=True):
                _log.warning("the database has more than PACELINE_RETENTION_BYTES, and nothing in it can go")
                return

    def _delete_oldest_hour(self) -> int:
        """Delete the rows of the oldest hour that has any, if it is rolled up; how many there were."""
        with self._database.read() as session:
            oldest = session.execute(select(func.min(col(RequestRow.id)))).scalar()
            rolled_hour = rollup_state(session).rolled_hour
        return 0 if oldest is None else self._delete_before(min(oldest // IDS_PER_HOUR + 1, rolled_hour))

    def _delete_labels(self, *, at_last: bool = False) -> bool:
        """Delete those that no row has, where it is worth looking for them; whether it was."""
        if self._unused is None or not self._unused.is_due(at_last=at_last):
            return False
        self._unused.delete()
        return True

    def _delete_before(self, hour: int) -> int:
        """Delete the rows of earlier hours, as far as they are rolled up; how many there were."""
        with self._database.read() as session:
            state = rollup_state(session)
            oldest = session.execute(select(func.min(col(RequestRow.id)))).scalar()
        hour = min(hour, state.rolled_hour)
        if oldest is None or oldest // IDS_PER_HOUR >= hour:
            return 0
        # First of all nobody may count on them.
        self._write(lambda session: set_state(session, kept_hour=max(hour, state.kept_hour)))
        total = 0
        while count := self._write(lambda session: _delete(session, hour * IDS_PER_HOUR)):
            total += count
            if self._unused is not None:
                self._unused.rows_went(count)
            self._pause(_PAUSE_SECONDS)
        _log.info("%d requests are kept as roll-ups only", total)
        return total

    def _delete_lives(self, hour: int) -> None:
        """Delete lives that ended before this hour, or before the first of which all rows are there: no row is left
        that names them.
        """
        with self._database.read() as session:
            end = max(hour, rollup_state(session).kept_hour) * 3_600_000
        while end and self._write(lambda session: delete_old_lives(session, end, _PIECE_LIVES)):
            self._pause(_PAUSE_SECONDS)

    def _give_back(self, _: int) -> None:
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
