"""Roll-ups: what /stats takes with and without them, what they take on disk, and what making them costs others."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from app.api.request_export import page, pieces
from app.database import Database
from app.proxy.observer import RequestFinished
from app.telemetry.codes import CATEGORIES
from app.telemetry.export import ExportFormat, export_as
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.stats import stats
from bench.recorder import EPOCH_SECONDS, SECONDS_BETWEEN, realistic

STATS_MOST_SECONDS = 0.3
GAP_MOST_SECONDS = 0.005
_REVISIONS = 5
_BURST = 5_000
_TICK_SECONDS = 0.001


def run(rows: int) -> int:
    """Print the figures for `rows` requests, one every 2.5 seconds; 1 where /stats takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'bench.db'}")
        database.migrate()
        database.start()
        try:
            return asyncio.run(_measure(database, rows))
        finally:
            database.close()


def days_of_work(rows: int) -> Iterator[RequestFinished]:
    """As `realistic`, with categories, and with revisions that follow one another."""
    categories = list(CATEGORIES.numbers)
    for number, event in enumerate(realistic(rows)):
        revision = 1 + number * _REVISIONS // rows
        context = event.context and replace(event.context, revision=revision, argv_hash=f"{revision:016x}")
        yield structs.replace(event, context=context, category=categories[number * 7 % len(categories)])


async def _measure(database: Database, rows: int) -> int:
    recorder = Recorder(database)
    for number, event in enumerate(days_of_work(rows)):
        recorder.on_request_finished(event)
        if number % _BURST == 0:
            await recorder.flush()
    await recorder.flush()
    before_seconds, before_bytes = _stats_seconds(database, rows), _used_bytes(database)
    print(f"roll-ups of {rows:,} requests in {rows * SECONDS_BETWEEN / 86_400:.0f} days")
    print(f"  /stats by profile and category from rows: {before_seconds * 1e3:,.0f} ms")
    keeper = Retention(database, days=0, bytes_most=0, clock=lambda: EPOCH_SECONDS + rows * SECONDS_BETWEEN)
    await _beside("rolled up", lambda: asyncio.to_thread(keeper.keep_up))
    took_seconds, grown = _stats_seconds(database, rows), _used_bytes(database) - before_bytes
    print(f"  /stats by profile and category from roll-ups: {took_seconds * 1e3:,.0f} ms")
    print(f"  {grown / 1e6:,.1f} MB of roll-ups beside {before_bytes / 1e6:,.1f} MB of rows")
    await _beside("exported as CSV", lambda: _export(database))
    half = Retention(
        database, days=rows * SECONDS_BETWEEN / 86_400 / 2, bytes_most=0,
        clock=lambda: EPOCH_SECONDS + rows * SECONDS_BETWEEN,
    )  # fmt: skip
    await _beside("half of the rows deleted, and their pages given back", lambda: asyncio.to_thread(half.keep_up))
    return int(took_seconds > STATS_MOST_SECONDS)


async def _export(database: Database) -> None:
    export = export_as(ExportFormat.CSV)
    first, cursor = await asyncio.to_thread(page, database, RequestFilters(), None, export)
    async for _ in pieces(database, RequestFilters(), export, first, cursor):
        pass


async def _beside(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, and say how late the event loop came to a tick of a millisecond meanwhile."""
    quiet = sorted(await _ticks(asyncio.sleep(1.0)))
    began = time.perf_counter()
    busy = sorted(await _ticks(work()))
    took_seconds = time.perf_counter() - began
    late = [ticks[len(ticks) * 99 // 100] for ticks in (quiet, busy)]
    quiet_ms, busy_ms = (seconds * 1e3 for seconds in late)
    print(f"  {what} in {took_seconds:.1f} s; ticks late by {busy_ms:.2f} ms (p99), without {quiet_ms:.2f} ms")


async def _ticks(work: Awaitable[None]) -> list[float]:
    """How much later than asked each sleep beside the work ended."""
    task = asyncio.ensure_future(work)
    late = []
    while not task.done():
        began = time.perf_counter()
        await asyncio.sleep(_TICK_SECONDS)
        late.append(time.perf_counter() - began - _TICK_SECONDS)
    await task
    return late


def _stats_seconds(database: Database, rows: int) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        with database.read() as session:
            found = stats(session, RequestFilters(), ("profile", "category"))
        best = min(best, time.perf_counter() - began)
        assert sum(row.requests for row in found) == rows
    return best


def _used_bytes(database: Database) -> int:
    with database.read() as session:
        run_sql = session.connection().exec_driver_sql
        pages, free, size = (
            run_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)
