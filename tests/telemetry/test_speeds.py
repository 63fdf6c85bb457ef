"""Speeds by profile and category, from recorded requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, finished, rejected
from msgspec import structs
from sqlalchemy import insert, select
from sqlmodel import col

from app.database import Database
from app.proxy.auto import Speed
from app.proxy.categories import Category
from app.telemetry.recorder import Recorder
from app.telemetry.speeds import RecordedSpeeds
from app.telemetry.tables import LaunchContextRow, RequestRow

DEADLINE_SECONDS = 30


async def recorded(database: Database, *events: object) -> None:
    recorder = Recorder(database)
    for event in events:
        recorder.on_request_finished(event)  # type: ignore[arg-type]
    await recorder.flush()


@contextlib.asynccontextmanager
async def reading(database: Database, clock: Callable[[], float]) -> AsyncIterator[RecordedSpeeds]:
    speeds = RecordedSpeeds(database, clock)
    job = asyncio.create_task(speeds.run())
    try:
        yield speeds
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


def context_of_no_engine(database: Database) -> int:
    """That of requests for a profile of which no engine took them."""
    with database.read() as session:
        statement = select(col(LaunchContextRow.id)).where(col(LaunchContextRow.revision).is_(None))
        return session.execute(statement).scalar_one() or 0


def fill(database: Database, *, first_second: int, count: int, context: int | None, tokens: int | None = None) -> None:
    """One request a second: of a second of generation, or rejected."""
    rows = [
        {
            "id": finished(first_second + number).request_id,
            "context_id": context,
            "endpoint_code": 1,
            "stream": False,
            "outcome_code": 1,
            "duration_us": 1,
            "generated_tokens": tokens,
            "generation_us": tokens and 1_000_000,
        }
        for number in range(count)
    ]
    database.submit(lambda session: session.execute(insert(RequestRow), rows)).result(DEADLINE_SECONDS)


async def test_tokens_after_the_first_and_their_seconds_by_category_and_in_all(database: Database) -> None:
    slow = structs.replace(DRAFTED, generated_tokens=11, generation_us=1_000_000)
    await recorded(
        database,
        finished(1, category="code"),
        finished(2, category="code"),
        finished(3, category="qa", report=slow),
        finished(4, report=slow),
        finished(5, context=PLAIN_CONTEXT, category="code", report=slow),
        finished(6, category="code", report=structs.replace(DRAFTED, generated_tokens=1)),
        finished(7, category="code", report=structs.replace(DRAFTED, generation_us=None)),
    )
    speeds = RecordedSpeeds(database)
    await speeds.refresh()
    known = speeds.of(CONTEXT.profile_id)
    assert set(known) == {None, Category.CODE, Category.QA}
    assert (known[Category.CODE].requests, known[Category.CODE].tokens) == (2, 128)
    assert known[Category.CODE].rate == pytest.approx(40)
    assert known[Category.QA].rate == pytest.approx(10)
    assert (known[None].requests, known[None].tokens) == (4, 148)
    assert speeds.of(PLAIN_CONTEXT.profile_id)[Category.CODE].rate == pytest.approx(10)
    assert speeds.of("nobody") == {}


async def test_the_first_reading_is_waited_for_and_what_is_old_is_read_again_for_those_who_ask_later(
    database: Database,
) -> None:
    await recorded(database, finished(1, category="code"))
    now = [0.0]
    async with reading(database, lambda: now[0]) as speeds:
        await speeds.first_reading()
        assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1
        await recorded(database, finished(2, category="code"))
        now[0] = 31.0
        assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1
        async with asyncio.timeout(10):
            while speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 2


async def test_nobody_waits_for_a_database_that_does_not_answer(database: Database) -> None:
    await RecordedSpeeds(database).first_reading(seconds=0.01)


async def test_a_database_that_cannot_be_read_is_told_of_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    database = Database(f"sqlite:///{tmp_path / 'later.db'}")
    async with reading(database, lambda: now[0]) as speeds:
        await speeds.first_reading()
        assert "recorded speeds, by which auto chooses, are not read" in caplog.text
        assert speeds.of(CONTEXT.profile_id) == {}
        database.migrate()
        database.start()
        await recorded(database, finished(1))
        now[0] = 31.0
        async with asyncio.timeout(10):
            while not speeds.of(CONTEXT.profile_id):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
    database.close()


async def test_what_comes_to_nothing_does_not_push_out_what_was_measured(database: Database) -> None:
    """As many as once made `auto` blind: for models that nobody knows, and for a profile that never came up."""
    await recorded(database, finished(1, category="code"), finished(2, context=PLAIN_CONTEXT))
    await recorded(database, rejected(3, profile_id=CONTEXT.profile_id), rejected(4, profile_id=None))
    fill(database, first_second=10, count=15_000, context=context_of_no_engine(database))
    fill(database, first_second=100_000, count=15_000, context=None)
    speeds = RecordedSpeeds(database)
    await speeds.refresh()
    assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1
    assert speeds.of(PLAIN_CONTEXT.profile_id)[None].requests == 1


async def test_failures_of_a_launch_do_not_hide_its_speed(database: Database) -> None:
    await recorded(database, finished(1, category="code"))
    fill(database, first_second=10, count=5_000, context=1)
    speeds = RecordedSpeeds(database)
    await speeds.refresh()
    assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1


async def test_of_each_profile_the_newest_count_from_its_newest_launch_back(database: Database) -> None:
    newer = replace(CONTEXT, revision=4)
    await recorded(database, finished(1), finished(2, context=newer, category="qa"), finished(3, context=PLAIN_CONTEXT))
    fill(database, first_second=10, count=700, context=1, tokens=11)
    fill(database, first_second=1_000, count=1_500, context=3, tokens=31)
    fill(database, first_second=5_000, count=400, context=2, tokens=21)
    speeds = RecordedSpeeds(database)
    await speeds.refresh()
    known = speeds.of(CONTEXT.profile_id)
    assert known[None].requests == 1000
    # All 401 of the newer launch, and of the older one the newest 599, which are not the very first.
    assert known[None].tokens == 400 * 20 + 64 + 599 * 10
    assert speeds.of(PLAIN_CONTEXT.profile_id)[None] == Speed(1000, 30_000, 1000.0)
