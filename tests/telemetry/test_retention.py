"""What is deleted when, that sums stay, and that nobody who writes has to wait for it."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from fakes.finished_requests import START_SECONDS, finished
from fakes.instance_records import STOPPED
from service import eventually
from sqlalchemy import text

from app.database import Database
from app.errors import DatabaseUnavailable
from app.identifiers import IDS_PER_HOUR
from app.instances.archive import InstanceArchive
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.stats import stats

START_HOUR = START_SECONDS // 3600
DAY_SECONDS = 86_400

MANY_ROWS = """
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows - 1)
INSERT INTO request (id, endpoint_code, stream, outcome_code, duration_us, category_code,
                     time_to_first_token_us, generated_tokens, generation_us)
SELECT :first + n * (:span / :rows), 1, 1, 1, 1, 1 + n % 8, n, 2, n + 1 FROM numbers
"""


async def fill(database: Database, rows: int, hours: int) -> None:
    """So many rows, evenly over hours from START_HOUR on."""
    values = {"rows": rows, "first": START_HOUR * IDS_PER_HOUR, "span": hours * IDS_PER_HOUR}
    await database.write(lambda session: session.connection().execute(text(MANY_ROWS), values).rowcount)


def keeper(database: Database, hours_after_start: float, *, days: float = 0, bytes_most: int = 0) -> Retention:
    now = (START_HOUR + hours_after_start) * 3600.0
    return Retention(database, days=days, bytes_most=bytes_most, clock=lambda: now)


def kept(database: Database) -> tuple[int, int]:
    """The hour of the oldest row, from START_HOUR on, and how many rows there are."""
    with database.read() as session:
        oldest, count = session.connection().exec_driver_sql("SELECT min(id), count(*) FROM request").one()
    return oldest // IDS_PER_HOUR - START_HOUR, count


def counted(database: Database) -> int:
    with database.read() as session:
        return sum(row.requests for row in stats(session, RequestFilters(), ("category",)))


def pages(database: Database) -> int:
    with database.read() as session:
        return int(session.connection().exec_driver_sql("PRAGMA page_count").scalar_one())


async def test_rows_of_whole_hours_go_by_age_and_sums_stay(database: Database) -> None:
    await fill(database, 1000, hours=100)
    await asyncio.to_thread(keeper(database, 100.5, days=2).keep_up)
    assert kept(database) == (52, 480)
    assert counted(database) == 1000
    await asyncio.to_thread(keeper(database, 101, days=2).keep_up)
    assert kept(database) == (53, 470)
    assert counted(database) == 1000


async def test_a_part_of_an_hour_is_not_cut_short(database: Database) -> None:
    """Half an hour: what is younger stays, so the hour before this one does."""
    await fill(database, 1000, hours=100)
    await asyncio.to_thread(keeper(database, 100.5, days=0.02).keep_up)
    assert kept(database) == (99, 10)


async def test_no_limit_keeps_all(database: Database) -> None:
    await fill(database, 1000, hours=100)
    await asyncio.to_thread(keeper(database, 100_000).keep_up)
    assert kept(database) == (0, 1000)


async def test_the_oldest_go_by_size_and_the_file_becomes_smaller(database: Database) -> None:
    await fill(database, 30_000, hours=60)
    before = pages(database)
    limit_bytes = before * 4096 // 4
    await asyncio.to_thread(keeper(database, 61, bytes_most=limit_bytes).keep_up)
    _, count = kept(database)
    assert 500 < count < 12_000
    assert counted(database) == 30_000
    assert pages(database) < before * 0.7
    with database.read() as session:
        assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


async def test_what_is_not_over_cannot_go(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    await fill(database, 500, hours=1)
    await asyncio.to_thread(keeper(database, 0.9, bytes_most=1).keep_up)
    assert kept(database) == (0, 500)
    assert "nothing in it can go" in caplog.text


async def test_rows_that_wait_to_be_rolled_up_do_not_go(database: Database) -> None:
    await fill(database, 100, hours=50)
    await asyncio.to_thread(keeper(database, 50, days=0).keep_up)
    recorder = Recorder(database)
    recorder.on_request_finished(finished(5))
    await recorder.flush()
    assert counted(database) == 101
    await asyncio.to_thread(keeper(database, 60, days=1).keep_up)
    assert counted(database) == 101
    assert kept(database)[0] >= 36


async def test_who_writes_meanwhile_does_not_wait(database: Database) -> None:
    """Two thousand hours are rolled up and deleted; every write in between comes in its turn."""
    await fill(database, 20_000, hours=200)
    loop = asyncio.get_running_loop()
    work = asyncio.create_task(asyncio.to_thread(keeper(database, 200, days=1).keep_up))
    waits = []
    while not work.done():
        began = loop.time()
        await database.write(lambda session: None)
        waits.append(loop.time() - began)
    await work
    assert len(waits) > 50
    assert sorted(waits)[len(waits) * 9 // 10] < 0.1
    assert counted(database) == 20_000


async def test_it_runs_by_itself_and_ends_when_asked(database: Database) -> None:
    await fill(database, 1000, hours=100)
    job = asyncio.create_task(keeper(database, 200, days=1).run())

    def is_rolled() -> bool | None:
        with database.read() as session:
            return session.connection().exec_driver_sql("SELECT count(*) FROM request").scalar() == 0 or None

    await asyncio.to_thread(eventually, is_rolled)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert counted(database) == 1000


async def test_a_database_that_is_closed_is_an_error_that_has_a_name(database: Database) -> None:
    database.close()
    with pytest.raises(DatabaseUnavailable):
        keeper(database, 1).keep_up()


async def store_lives(database: Database, *ends: float) -> None:
    """A life of one profile that ended so many hours after the start, for each."""
    archive = InstanceArchive(database)
    for number, hours in enumerate(ends):
        end = datetime.fromtimestamp((START_HOUR + hours) * 3600, UTC)
        archive.store(replace(STOPPED, id=number, created_at=end - timedelta(minutes=5), stopped_at=end))
    await archive.close()


def lives(database: Database) -> list[int]:
    with database.read() as session:
        return list(session.connection().exec_driver_sql("SELECT id FROM instance ORDER BY id").scalars())


async def test_lives_go_by_age_with_the_rows_that_could_name_them(database: Database) -> None:
    await store_lives(database, 10, 51.9, 52.1, 90)
    await asyncio.to_thread(keeper(database, 100.5).keep_up)
    assert lives(database) == [0, 1, 2, 3]
    await asyncio.to_thread(keeper(database, 100.5, days=2).keep_up)
    assert lives(database) == [2, 3]


async def test_lives_go_by_size_with_the_rows_that_could_name_them(database: Database) -> None:
    await fill(database, 30_000, hours=60)
    await store_lives(database, 1, 59.5, 60.5)
    await asyncio.to_thread(keeper(database, 61, bytes_most=pages(database) * 4096 // 2).keep_up)
    assert 1 < kept(database)[0] < 59
    assert lives(database) == [1, 2]


async def test_hours_that_cannot_be_read_do_not_keep_what_is_rolled_up(database: Database) -> None:
    """What another version may have left: it is told, and all else is done."""
    await fill(database, 1000, hours=100)
    await asyncio.to_thread(keeper(database, 80).keep_up)
    broken = text("UPDATE request_rollup SET histograms = x'c1' WHERE hours = 1 AND first_hour = :hour")
    await database.write(lambda session: session.connection().execute(broken, {"hour": START_HOUR + 79}))
    retention = keeper(database, 100.5, days=1)
    with pytest.raises(msgspec.DecodeError):
        await asyncio.to_thread(retention.keep_up)
    assert kept(database)[0] == 76


async def test_a_failure_that_nobody_foresaw_is_a_finding(database: Database) -> None:
    await fill(database, 1000, hours=100)
    await asyncio.to_thread(keeper(database, 90).keep_up)
    await database.write(lambda session: session.connection().exec_driver_sql("DROP TABLE request_late"))
    retention = keeper(database, 100.5, days=1)
    assert not retention.findings()
    job = asyncio.create_task(retention.run())
    (found,) = await asyncio.to_thread(eventually, lambda: retention.findings() or None)
    assert found.rule == "upkeep-failed"
    assert "request_late" in found.message
    assert not job.done()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job


async def test_days_without_end_are_days(database: Database) -> None:
    await fill(database, 100, hours=10)
    await asyncio.to_thread(keeper(database, 1000, days=1e300).keep_up)
    assert kept(database) == (0, 100)


async def test_a_new_file_can_give_pages_back(database: Database) -> None:
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
