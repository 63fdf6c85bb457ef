"""Roll-ups: what /stats takes with and without them, and what they and the rows take on disk."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs
from sqlalchemy.exc import OperationalError

from app.database import Database
from app.proxy.observer import RequestFinished
from app.telemetry.codes import CATEGORIES
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.stats import stats
from bench.recorder import EPOCH_SECONDS, SECONDS_BETWEEN, realistic

STATS_MOST_SECONDS = 0.3
BYTES_PER_ROW_MOST = 200
# With fewer, tables that hold next to nothing weigh too much.
_JUDGED_ROWS = 200_000
_REVISIONS = 5
_BURST = 5_000


def run(rows: int) -> int:
    """Print the figures for `rows` requests, one every 2.5 seconds; 1 where a budget is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'bench.db'}")
        database.migrate()
        database.start()
        try:
            return asyncio.run(_measure(database, rows))
        finally:
            database.close()


def filled(file: Path, rows: int, begin_seconds: float) -> None:
    """Make a database with `days_of_work` from that moment on."""
    database = Database(f"sqlite:///{file}")
    database.migrate()
    database.start()
    try:
        asyncio.run(_record(database, days_of_work(rows, begin_seconds)))
    finally:
        database.close()


def days_of_work(rows: int, begin_seconds: float = EPOCH_SECONDS) -> Iterator[RequestFinished]:
    """As `realistic`, with all that a row can have: each speculates, is of a category, and has an id of its client's.
    Revisions follow one another.
    """
    categories = list(CATEGORIES.numbers)
    for number, event in enumerate(realistic(rows, with_client_id=1.0, begin_seconds=begin_seconds)):
        revision = 1 + number * _REVISIONS // rows
        context = event.context and replace(
            event.context, revision=revision, argv_hash=f"{revision:016x}", method="draft"
        )
        report = event.report
        if report.generated_tokens is not None:
            drafted = report.generated_tokens // 2
            report = structs.replace(report, draft_tokens=drafted, accepted_tokens=drafted * (number % 100) // 100)
        category = categories[number * 7 % len(categories)]
        yield structs.replace(event, context=context, category=category, client="open-webui", report=report)


async def _measure(database: Database, rows: int) -> int:
    await _record(database, days_of_work(rows))
    before_seconds, before_bytes = _stats_seconds(database, rows), used_bytes(database)
    print(f"roll-ups of {rows:,} requests in {rows * SECONDS_BETWEEN / 86_400:.0f} days")
    print(f"  /stats by profile and category from rows: {before_seconds * 1e3:,.0f} ms")
    keeper = Retention(database, days=0, bytes_most=0, clock=lambda: EPOCH_SECONDS + rows * SECONDS_BETWEEN)
    began = time.perf_counter()
    await asyncio.to_thread(keeper.keep_up)
    print(f"  rolled up in {time.perf_counter() - began:.1f} s")
    took_seconds, all_bytes = _stats_seconds(database, rows), used_bytes(database)
    is_slow = _over(took_seconds, STATS_MOST_SECONDS)
    print(f"  /stats by profile and category from roll-ups: {took_seconds * 1e3:,.0f} ms{is_slow}")
    bytes_per_row = all_bytes / rows
    is_judged = rows >= _JUDGED_ROWS
    print(
        f"  {bytes_per_row:.0f} MB for each million: {before_bytes / rows:.0f} of rows with a client's id each, "
        f"{(all_bytes - before_bytes) / rows:.0f} of roll-ups"
        f"{_over(bytes_per_row, BYTES_PER_ROW_MOST) if is_judged else ''}"
    )
    for name, share in _largest(database):
        print(f"    {share / rows:6.1f} {name}")
    return int(took_seconds > STATS_MOST_SECONDS or (is_judged and bytes_per_row > BYTES_PER_ROW_MOST))


def _over(figure: float, most: float) -> str:
    return "" if figure <= most else " - exceeded"


async def _record(database: Database, events: Iterator[RequestFinished]) -> None:
    recorder = Recorder(database)
    for number, event in enumerate(events):
        recorder.on_request_finished(event)
        if number % _BURST == 0:
            await recorder.flush()
    await recorder.flush()
    assert recorder.lost_rows == 0


def _stats_seconds(database: Database, rows: int) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        with database.read() as session:
            found = stats(session, RequestFilters(), ("profile", "category"))
        best = min(best, time.perf_counter() - began)
        assert sum(row.requests for row in found) == rows
    return best


def used_bytes(database: Database) -> int:
    """Of the pages that hold something."""
    with database.read() as session:
        run_sql = session.connection().exec_driver_sql
        pages, free, size = (
            run_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def _largest(database: Database) -> Sequence[tuple[str, int]]:
    """The tables and indexes that take most, with their bytes; none where SQLite was built without `dbstat`."""
    statement = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 5"
    with database.read() as session:
        try:
            return [(name, size) for name, size in session.connection().exec_driver_sql(statement)]
        except OperationalError:
            return []
