"""Recorded generation speeds of profiles, by category: what `auto` goes by."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.database import Database
from app.errors import DatabaseUnavailable
from app.proxy.auto import Speed
from app.proxy.categories import Category
from app.telemetry.newest_timed import newest_timed
from app.telemetry.tables import LaunchContextRow, RequestRow

_log = logging.getLogger(__name__)

# Of each profile the newest with a rate: what was long ago was another build, or other drafts. What others ask for, and
# what comes to nothing, must not push them out.
_ROWS_MOST = 1000
# A bound on what is read of a profile whose requests have no rate, such as one for embeddings.
_LOOKED_MOST = 20_000
_CONTEXTS_MOST = 16
_FRESH_SECONDS = 30.0
_FIRST_READING_SECONDS = 1.0


class RecordedSpeeds:
    """Answers from memory; what is old is read again in the background, for those who ask later.

    `run` reads and belongs to the jobs of the service; `first_reading` is awaited before the first request.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._table: Mapping[str, Mapping[Category | None, Speed]] = {}
        self._read_at = float("-inf")
        self._asked = asyncio.Event()
        self._tried = asyncio.Event()

    def of(self, profile_id: str) -> Mapping[Category | None, Speed]:
        """By category, and under None of all requests together; empty where nothing was recorded."""
        if self._clock() - self._read_at > _FRESH_SECONDS:
            self._asked.set()
        return self._table.get(profile_id, {})

    async def run(self) -> None:
        """Until cancelled: read at once, and then whenever somebody has asked for what is old."""
        while True:
            try:
                await self.refresh()
            except DatabaseUnavailable as problem:
                _log.warning("recorded speeds, by which auto chooses, are not read: %s", problem.message)
            self._tried.set()
            # What was asked for meanwhile has just been read.
            self._asked.clear()
            await self._asked.wait()

    async def first_reading(self, seconds: float = _FIRST_READING_SECONDS) -> None:
        """Wait for the first reading, but not longer than so: a slow database must not hold up a start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tried.wait()

    async def refresh(self) -> None:
        """Read what was recorded. Raises DatabaseUnavailable, and keeps what there was."""
        try:
            self._table = await asyncio.to_thread(self._read)
        finally:
            self._read_at = self._clock()

    def _read(self) -> Mapping[str, Mapping[Category | None, Speed]]:
        with self._database.read() as session:
            launches = _newest_launches(session)
            return {profile_id: _speeds_of(session, contexts) for profile_id, contexts in launches.items()}


def _newest_launches(session: Session) -> Mapping[str, Sequence[int]]:
    """The launch contexts of each profile that were used last, newest first. Without a revision there is no engine."""
    context = col(LaunchContextRow.id)
    newest = (
        select(func.max(col(RequestRow.id)))
        .where(col(RequestRow.context_id) == context)
        .correlate(LaunchContextRow)
        .scalar_subquery()
    )
    statement = select(col(LaunchContextRow.profile_id), context, newest).where(
        col(LaunchContextRow.revision).is_not(None)
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for profile_id, number, last in session.execute(statement):
        if last is not None:
            found.setdefault(profile_id, []).append((last, number))
    return {
        profile_id: [number for _, number in sorted(its, reverse=True)[:_CONTEXTS_MOST]]
        for profile_id, its in found.items()
    }


def _speeds_of(session: Session, contexts: Sequence[int]) -> Mapping[Category | None, Speed]:
    """Of the newest requests with a rate of one profile, from its newest launch back."""
    speeds: dict[Category | None, Speed] = {}
    for context in contexts:
        wanted = _ROWS_MOST - speeds.get(None, Speed()).requests
        if wanted <= 0:
            break
        for word, timed in newest_timed(session, context, wanted, looked_most=_LOOKED_MOST).items():
            speed = Speed(timed.requests, timed.tokens, timed.microseconds / 1e6)
            speeds[None] = _sum(speeds.get(None, Speed()), speed)
            if word in set(Category):
                category = Category(word)
                speeds[category] = _sum(speeds.get(category, Speed()), speed)
    return speeds


def _sum(first: Speed, second: Speed) -> Speed:
    return Speed(first.requests + second.requests, first.tokens + second.tokens, first.seconds + second.seconds)
