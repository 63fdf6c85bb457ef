"""Recorded generation speeds of profiles, by category: what `auto` goes by."""

import asyncio
import time
from collections.abc import Callable, Mapping

from sqlalchemy import func, select
from sqlmodel import col

from app.database import Database
from app.proxy.auto import Speed
from app.proxy.categories import Category
from app.telemetry.codes import CATEGORIES
from app.telemetry.queries import HAS_RATE
from app.telemetry.tables import LaunchContextRow, RequestRow

# The newest requests of all: what was long ago was another build, or other drafts.
_ROWS_MOST = 20_000
_FRESH_SECONDS = 30.0


class RecordedSpeeds:
    """Answers from memory; what is old is read again in the background, for those who ask later."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._table: Mapping[str, Mapping[Category | None, Speed]] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    def of(self, profile_id: str) -> Mapping[Category | None, Speed]:
        """By category, and under None of all requests together; empty where nothing was recorded."""
        is_old = self._clock() - self._read_at > _FRESH_SECONDS
        if is_old and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self.refresh())
        return self._table.get(profile_id, {})

    async def refresh(self) -> None:
        """Read what was recorded."""
        self._read_at = self._clock()
        self._table = await asyncio.to_thread(self._read)

    def _read(self) -> Mapping[str, Mapping[Category | None, Speed]]:
        ids = col(RequestRow.id)
        oldest = select(ids).order_by(ids.desc()).offset(_ROWS_MOST - 1).limit(1).scalar_subquery()
        statement = (
            select(
                col(LaunchContextRow.profile_id),
                col(RequestRow.category_code),
                func.count(),
                func.sum(col(RequestRow.generated_tokens) - 1),
                func.sum(col(RequestRow.generation_us)),
            )
            .join(LaunchContextRow, col(LaunchContextRow.id) == col(RequestRow.context_id))
            .where(ids >= func.coalesce(oldest, 0), HAS_RATE)
            .group_by(col(LaunchContextRow.profile_id), col(RequestRow.category_code))
        )
        table: dict[str, dict[Category | None, Speed]] = {}
        with self._database.read() as session:
            for profile_id, code, requests, tokens, microseconds in session.execute(statement):
                speeds = table.setdefault(profile_id, {None: Speed()})
                speed = Speed(requests, tokens, microseconds / 1e6)
                speeds[None] = _sum(speeds[None], speed)
                word = CATEGORIES.decode(code) if code is not None else ""
                if word in set(Category):
                    speeds[Category(word)] = speed
        return table


def _sum(first: Speed, second: Speed) -> Speed:
    return Speed(first.requests + second.requests, first.tokens + second.tokens, first.seconds + second.seconds)
