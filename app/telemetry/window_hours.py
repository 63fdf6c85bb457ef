"""Old acceptance windows, put together to one for each hour of a life: sums stay exact, and rows stay few for ever."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

import msgspec
from sqlalchemy import delete, func, select
from sqlmodel import Session, col

from app.database import Database
from app.errors import DatabaseUnavailable
from app.findings import Finding
from app.identifiers import IDS_PER_HOUR, first_id_at
from app.telemetry.hourly import Hourly
from app.telemetry.tables import AcceptanceWindowRow

_KEPT_APART_SECONDS = 6 * 3600.0
# The windows of a context and an instance that ended in an hour.
_Hour = tuple[int, int, int]
_HOUR_COLUMNS = (
    col(AcceptanceWindowRow.context_id),
    col(AcceptanceWindowRow.instance_id),
    col(AcceptanceWindowRow.id) // IDS_PER_HOUR,
)


class WindowHours:
    """Each hour puts together what is older than `kept_apart_seconds`.

    While `is_all_there` says no, windows wait elsewhere to be written, among them some that are there already: what was
    put together would be counted again.
    """

    def __init__(
        self,
        database: Database,
        *,
        kept_apart_seconds: float = _KEPT_APART_SECONDS,
        is_all_there: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._kept_apart_seconds = kept_apart_seconds
        self._is_all_there = is_all_there
        self._clock = clock
        self._hourly = Hourly("putting old acceptance windows together", self.put_together, clock=clock)

    async def run(self) -> None:
        """Until cancelled: now, and after every hour."""
        await self._hourly.run()

    def findings(self) -> Sequence[Finding]:
        """That it failed, until it succeeds."""
        return self._hourly.findings()

    async def put_together(self) -> None:
        """One row for each old hour of a life, where all are there. Raises DatabaseUnavailable at once, and whatever
        else is in the way of an hour when the others are done.

        Each hour is a piece of work of its own: other writers come between, and nothing is lost where it is cut short.
        """
        if not self._is_all_there():
            return
        end_id = first_id_at(int((self._clock() - self._kept_apart_seconds) * 1000)) // IDS_PER_HOUR * IDS_PER_HOUR
        failure: Exception | None = None
        for hour in await asyncio.to_thread(self._apart, end_id):
            try:
                await asyncio.wrap_future(self._database.submit(partial(_put_together, hour=hour), urgent=False))
            except DatabaseUnavailable:
                raise
            except Exception as raised:
                failure = failure or raised
        if failure is not None:
            raise failure

    def _apart(self, end_id: int) -> Sequence[_Hour]:
        """Hours before this id that have several rows."""
        statement = (
            select(*_HOUR_COLUMNS)
            .where(col(AcceptanceWindowRow.id) < end_id)
            .group_by(*_HOUR_COLUMNS)
            .having(func.count() > 1)
        )
        with self._database.read() as session:
            return [(context, instance, hour) for context, instance, hour in session.execute(statement)]


def _put_together(session: Session, hour: _Hour) -> None:
    is_of_hour = [column == value for column, value in zip(_HOUR_COLUMNS, hour, strict=True)]
    statement = select(AcceptanceWindowRow).where(*is_of_hour).order_by(col(AcceptanceWindowRow.id))
    rows = session.execute(statement).scalars().all()
    if len(rows) < 2:
        return
    together = AcceptanceWindowRow(
        id=rows[-1].id,
        context_id=rows[-1].context_id,
        instance_id=rows[-1].instance_id,
        started_at_milliseconds=rows[0].started_at_milliseconds,
        ended_at_milliseconds=rows[-1].ended_at_milliseconds,
        drafts=_sum([row.drafts for row in rows]),
        draft_tokens=_sum([row.draft_tokens for row in rows]),
        accepted_tokens=_sum([row.accepted_tokens for row in rows]),
        accepted_by_position=_by_position([row.accepted_by_position for row in rows]),
        generated_tokens=_sum([row.generated_tokens for row in rows]),
        generation_us=_sum([row.generation_us for row in rows]),
        rounded_to=max(row.rounded_to for row in rows),
    )
    session.expunge_all()
    session.execute(delete(AcceptanceWindowRow).where(*is_of_hour))
    session.add(together)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _by_position(lists: Sequence[str | None]) -> str | None:
    """By position where every window tells it."""
    told = [msgspec.json.decode(each, type=list[int]) for each in lists if each is not None]
    if len(told) < len(lists):
        return None
    return msgspec.json.encode([sum(column) for column in zip_longest(*told, fillvalue=0)]).decode()
