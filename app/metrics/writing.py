"""How the database keeps up: its size, its rows, and how long the writer takes."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlmodel import SQLModel

from app.database import Database
from app.errors import DatabaseUnavailable

_log = logging.getLogger(__name__)
# A million rows take tens of milliseconds to count.
_COUNT_SECONDS: Final = 60.0


class DatabaseCollector(Collector):
    """Looks at the file at `path` at each scrape; `run` has the rows counted by table each `count_seconds`.

    Each scrape hands the writer a piece of work that does nothing (`submit`), unless one waits: how long the last one
    took to be committed, or has waited until now, is the lag.
    """

    def __init__(
        self,
        path: Path,
        count: Callable[[], Mapping[str, int]],
        submit: Callable[[], "Future[None]"],
        count_seconds: float = _COUNT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._count = count
        self._submit = submit
        self._count_seconds = count_seconds
        self._clock = clock
        self._rows: Mapping[str, int] = {}
        self._lag_seconds: float | None = None
        self._asked: tuple[float, Future[None]] | None = None

    async def run(self) -> None:
        """Count again and again, until cancelled."""
        while True:
            try:
                self._rows = await asyncio.to_thread(self._count)
            except DatabaseUnavailable as problem:
                _log.debug("rows were not counted: %s", problem.message)
            await asyncio.sleep(self._count_seconds)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        path = self._path
        size = GaugeMetricFamily(
            "paceline_database_size_bytes", "The database's file on disk, and the log that is not merged into it yet."
        )
        size.add_metric((), _size_of(path) + _size_of(path.with_name(f"{path.name}-wal")))
        rows = GaugeMetricFamily("paceline_database_rows", "Rows, counted each minute.", labels=("table",))
        for table, count in sorted(self._rows.items()):
            rows.add_metric((table,), count)
        lag = GaugeMetricFamily(
            "paceline_database_writer_lag_seconds",
            "How long a piece of work without content took to be committed, or has waited for that.",
        )
        if (lag_seconds := self._lag_now()) is not None:
            lag.add_metric((), lag_seconds)
        yield from (size, rows, lag)

    def _lag_now(self) -> float | None:
        """The lag, having seen to it that a piece of work is on its way."""
        if self._asked is not None and not self._asked[1].done():
            return self._clock() - self._asked[0]
        known_seconds, now_seconds = self._lag_seconds, self._clock()
        try:
            future = self._submit()
        except DatabaseUnavailable:
            return known_seconds
        self._asked = (now_seconds, future)
        future.add_done_callback(lambda done: self._answered(now_seconds, done))
        return known_seconds

    def _answered(self, asked_seconds: float, done: "Future[None]") -> None:
        if not done.cancelled():
            self._lag_seconds = self._clock() - asked_seconds


def rows_of(database: Database) -> Mapping[str, int]:
    """The rows of each table. Raises DatabaseUnavailable."""
    with database.read() as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table)) or 0
            for table in SQLModel.metadata.sorted_tables
        }


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
