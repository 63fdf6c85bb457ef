"""Roll-ups: hours that are over, and days, summed up in cells that stay when the rows go.

An hour is closed before it is read: who inserts a row of it from then on lists that as late, in the same transaction.
So what is read of an hour cannot change meanwhile, no row is counted twice, and none is missed, whenever it comes.
Summing up again gives the same.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlmodel import Session, col

from app.database import Database
from app.identifiers import IDS_PER_HOUR
from app.telemetry.cells import COUNTED, Cells, count_row, merged, packed_cells, read_cells, write_cells
from app.telemetry.tables import LateRequestRow, RequestRow, RollupStateRow

_log = logging.getLogger(__name__)

HOURS_PER_DAY = 24
# Between pages the event loop gets its turn: a page takes half a millisecond.
_PAGE_ROWS = 100
_PAUSE_SECONDS = 0.001
_LATE = select(col(LateRequestRow.id))


@dataclass(frozen=True, slots=True)
class RollupState:
    """The hours of RollupStateRow."""

    closed_hour: int
    rolled_hour: int
    kept_hour: int


def rollup_state(session: Session) -> RollupState:
    """How far the roll-ups are."""
    row = session.get(RollupStateRow, 1)
    return RollupState(0, 0, 0) if row is None else RollupState(row.closed_hour, row.rolled_hour, row.kept_hour)


def set_state(session: Session, **hours: int) -> None:
    """Note how far the roll-ups are; on the writer thread."""
    session.execute(update(RollupStateRow).values(**hours))


class Rollup:
    """Brings the roll-ups of `database` up to date. Runs on a thread of its own, and calls `pause` between pages."""

    def __init__(self, database: Database, pause: Callable[[float], object] = time.sleep) -> None:
        self._database = database
        self._pause = pause

    def roll(self, current_hour: int) -> None:
        """Sum up every hour before this one, and what came late. Raises DatabaseUnavailable.

        May be stopped after any step, and goes on from there.
        """
        with self._database.read() as session:
            state = rollup_state(session)
        # A clock that was set back opens nothing again.
        self._write(lambda session: set_state(session, closed_hour=max(current_hour, state.closed_hour)))
        rolled_hour = state.rolled_hour
        while rolled_hour < current_hour:
            rolled_hour = self._roll_next(rolled_hour, current_hour)
        self._add_late(rolled_hour)

    def _roll_next(self, hour: int, current_hour: int) -> int:
        """Sum up this hour, or pass over those without rows; the hour that comes next."""
        with self._database.read() as session:
            first_id = session.execute(
                select(func.min(col(RequestRow.id))).where(col(RequestRow.id) >= hour * IDS_PER_HOUR)
            ).scalar()
        day_end = (hour // HOURS_PER_DAY + 1) * HOURS_PER_DAY
        next_hour = current_hour if first_id is None else min(first_id // IDS_PER_HOUR, current_hour)
        cells: Cells | None = None
        if next_hour == hour:
            cells, next_hour = self._sum_up(hour), hour + 1
        elif hour % HOURS_PER_DAY:
            next_hour = min(next_hour, day_end)
        day: Sequence[Any] | None = None
        if next_hour == day_end and (cells is not None or hour % HOURS_PER_DAY):
            with self._database.read() as session:
                earlier = read_cells(session, 1, day_end - HOURS_PER_DAY, hour, self._breathe)
            day = packed_cells(HOURS_PER_DAY, day_end - HOURS_PER_DAY, merged([earlier, cells or {}]), self._breathe)
        rows = None if cells is None else packed_cells(1, hour, cells, self._breathe)

        def write(session: Session) -> None:
            if rows is not None:
                write_cells(session, 1, hour, rows)
            if day is not None:
                write_cells(session, HOURS_PER_DAY, day_end - HOURS_PER_DAY, day)
            set_state(session, rolled_hour=next_hour)

        self._write(write)
        return next_hour

    def _sum_up(self, hour: int) -> Cells:
        cells: Cells = {}
        not_late = col(RequestRow.id).not_in(_LATE)
        for page in self._pages(hour * IDS_PER_HOUR, (hour + 1) * IDS_PER_HOUR, not_late):
            for identifier, *values in page:
                count_row(cells, identifier, values)
        return cells

    def _add_late(self, rolled_hour: int) -> None:
        """Add late rows of hours that were summed up without them."""
        is_late = col(RequestRow.id).in_(_LATE)
        for page in self._pages(0, rolled_hour * IDS_PER_HOUR, is_late):
            by_hour: dict[int, Cells] = {}
            for identifier, *values in page:
                count_row(by_hour.setdefault(identifier // IDS_PER_HOUR, {}), identifier, values)
            identifiers = [row[0] for row in page]
            self._write(partial(_merge_late, by_hour=by_hour, ids=identifiers, rolled_hour=rolled_hour))
            _log.debug("%d late requests were added to the roll-ups", len(page))

    def _pages(self, first_id: int, end_id: int, condition: Any) -> Iterator[Sequence[Any]]:
        while first_id < end_id:
            statement = (
                select(col(RequestRow.id), *COUNTED)
                .where(col(RequestRow.id) >= first_id, col(RequestRow.id) < end_id, condition)
                .order_by(col(RequestRow.id))
                .limit(_PAGE_ROWS)
            )
            with self._database.read() as session:
                page = session.execute(statement).all()
            if page:
                yield page
                self._breathe()
            if len(page) < _PAGE_ROWS:
                return
            first_id = page[-1][0] + 1

    def _breathe(self) -> None:
        self._pause(_PAUSE_SECONDS)

    def _write(self, work: Callable[[Session], None]) -> None:
        self._database.submit(work).result()


def _merge_late(session: Session, by_hour: dict[int, Cells], ids: Sequence[int], rolled_hour: int) -> None:
    """The hours and, where they are whole, their days; the rows are late no more."""
    for hour, cells in by_hour.items():
        together = merged([read_cells(session, 1, hour, hour + 1), cells])
        write_cells(session, 1, hour, packed_cells(1, hour, together))
        day = hour // HOURS_PER_DAY * HOURS_PER_DAY
        if day + HOURS_PER_DAY <= rolled_hour:
            together = merged([read_cells(session, HOURS_PER_DAY, day, day + 1), cells])
            write_cells(session, HOURS_PER_DAY, day, packed_cells(HOURS_PER_DAY, day, together))
    session.execute(delete(LateRequestRow).where(col(LateRequestRow.id).in_(ids)))
