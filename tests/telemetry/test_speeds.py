"""Speeds by profile and category, from recorded requests."""

import asyncio

import pytest
from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, finished
from msgspec import structs

from app.database import Database
from app.proxy.categories import Category
from app.telemetry.recorder import Recorder
from app.telemetry.speeds import RecordedSpeeds


async def recorded(database: Database, *events: object) -> None:
    recorder = Recorder(database)
    for event in events:
        recorder.on_request_finished(event)  # type: ignore[arg-type]
    await recorder.flush()


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


async def test_what_is_old_is_read_again_for_those_who_ask_later(database: Database) -> None:
    now = [0.0]
    speeds = RecordedSpeeds(database, clock=lambda: now[0])
    await speeds.refresh()
    await recorded(database, finished(1, category="code"))
    assert speeds.of(CONTEXT.profile_id) == {}
    now[0] = 31.0
    assert speeds.of(CONTEXT.profile_id) == {}
    async with asyncio.timeout(10):
        while not speeds.of(CONTEXT.profile_id):
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
    assert speeds.of(CONTEXT.profile_id)[Category.CODE].requests == 1
