"""Roll-ups against the rows that they are made of: nothing is counted twice, and nothing missed."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.finished_requests import START_SECONDS
from sqlmodel import Session
from telemetry.some_requests import record, some_events

from app.database import Database
from app.telemetry.histogram import RELATIVE_ERROR
from app.telemetry.queries import RequestFilters
from app.telemetry.rollup import Rollup, rollup_state
from app.telemetry.stats import Percentiles, StatsRow, stats

START = datetime.fromtimestamp(START_SECONDS, UTC)
START_HOUR = START_SECONDS // 3600
NAMES = ("profile", "revision", "method", "engine_build", "category", "hour")


def asked(database: Database, names: Sequence[str] = (), **filters: object) -> list[StatsRow]:
    with database.read() as session:
        return stats(session, RequestFilters(**filters), names)  # type: ignore[arg-type]


def roll(database: Database, hours_after_start: int) -> None:
    Rollup(database, pause=lambda _: None).roll(START_HOUR + hours_after_start)


def is_like(found: list[StatsRow], expected: list[StatsRow]) -> None:
    """The same but for percentiles, which may be so far off as is said."""
    plain = {"percentiles_relative_error": 0.0}
    measured = ("generation_tokens_per_second", "time_to_first_token_seconds", "time_per_output_token_seconds", "queue_seconds")  # fmt: skip  # noqa: E501
    without = plain | dict.fromkeys(measured)
    assert [replace(row, **without) for row in found] == [replace(row, **without) for row in expected]
    for row, exact in zip(found, expected, strict=True):
        for name in measured:
            seen, true = getattr(row, name), getattr(exact, name)
            assert (seen is None) == (true is None)
            if seen is not None:
                assert values(seen) == pytest.approx(values(true), rel=row.percentiles_relative_error or 1e-12)


def values(percentiles: Percentiles) -> tuple[float, float, float]:
    return percentiles.p50, percentiles.p90, percentiles.p99


def drop_rows(database: Database, before_hour: int) -> None:
    """What retention does, by hand."""

    def work(session: Session) -> None:
        run = session.connection().exec_driver_sql
        run("UPDATE rollup_state SET kept_hour = ?", (before_hour,))
        run("DELETE FROM request WHERE id < ?", ((before_hour * 3_600_000) << 20,))

    database.submit(work).result(10)


async def test_answers_stay_the_same_when_the_rows_are_gone(database: Database) -> None:
    """Every way to group, over three days that begin and end within an hour; the last hours are not over."""
    await record(database, some_events(600, hours=60))
    combinations = [names for count in range(4) for names in itertools.combinations(NAMES, count)]
    before = {names: asked(database, names) for names in combinations}
    roll(database, 58)
    assert {names: asked(database, names) for names in combinations} == before, "rows are there, and few"
    drop_rows(database, START_HOUR + 55)
    for names in combinations:
        found = asked(database, names)
        is_like(found, before[names])
    assert {row.percentiles_relative_error for row in asked(database, ("hour",))} == {0.0, RELATIVE_ERROR}


@pytest.mark.parametrize(
    "filters",
    [
        {"profile": "gemma"},
        {"method": "none", "category": "code"},
        {"outcome": "client_gone"},
        {"since": START + timedelta(hours=7, minutes=6, seconds=40)},  # 16:00
        {"until": START + timedelta(hours=30, minutes=6, seconds=40)},
        {"since": START + timedelta(hours=20, minutes=6, seconds=40), "until": START + timedelta(hours=57, minutes=50)},
        {"since": START + timedelta(hours=58)},
        {"profile": "nobody"},
    ],
)
async def test_filters_leave_the_same_of_roll_ups_as_of_rows(database: Database, filters: dict[str, object]) -> None:
    await record(database, some_events(600, hours=60))
    before = asked(database, ("profile", "category"), **filters)
    roll(database, 58)
    drop_rows(database, START_HOUR + 55)
    is_like(asked(database, ("profile", "category"), **filters), before)


async def test_a_part_of_an_hour_whose_rows_are_gone_counts_as_the_whole(database: Database) -> None:
    await record(database, some_events(600, hours=60))
    hour = datetime.fromtimestamp((START_HOUR + 10) * 3600, UTC)
    whole = asked(database, since=hour, until=hour + timedelta(hours=3))
    roll(database, 58)
    drop_rows(database, START_HOUR + 55)
    part = asked(database, since=hour + timedelta(minutes=30), until=hour + timedelta(hours=2, minutes=1))
    is_like(part, whole)


async def test_what_comes_late_is_rolled_up_with_its_hour_and_its_day(database: Database) -> None:
    events = some_events(600, hours=60)
    await record(database, events[::2])
    roll(database, 40)
    await record(database, events[1::2])
    before = {names: asked(database, names) for names in ((), ("hour", "profile"))}
    assert before[()][0].requests == 600
    roll(database, 58)
    drop_rows(database, START_HOUR + 55)
    for names, expected in before.items():
        is_like(asked(database, names), expected)


async def test_late_rows_count_while_they_wait_to_be_rolled_up(database: Database) -> None:
    events = some_events(300, hours=30)
    await record(database, events[::2])
    roll(database, 29)
    drop_rows(database, START_HOUR + 20)
    await record(database, events[1::2])
    assert asked(database)[0].requests == 300
    roll(database, 29)
    assert asked(database)[0].requests == 300
    roll(database, 29)
    assert asked(database)[0].requests == 300


async def test_rolling_up_goes_on_where_it_was_stopped(database: Database) -> None:
    """Stopped after every page there is, and run again each time."""
    await record(database, some_events(900, hours=60))
    before = asked(database, ("profile", "hour"))

    class Stopped(Exception):
        pass

    def stop(_: float) -> None:
        raise Stopped

    for _ in range(3):
        with pytest.raises(Stopped):
            Rollup(database, pause=stop).roll(START_HOUR + 58)
    for hour in range(1, 59):
        roll(database, hour)
    with database.read() as session:
        assert rollup_state(session).rolled_hour == START_HOUR + 58
    drop_rows(database, START_HOUR + 55)
    is_like(asked(database, ("profile", "hour")), before)


async def test_many_rows_of_one_hour_are_read_by_pages(database: Database) -> None:
    await record(database, some_events(3000, hours=0.1))
    before = asked(database, ("profile", "category"))
    roll(database, 1)
    drop_rows(database, START_HOUR + 1)
    is_like(asked(database, ("profile", "category")), before)


async def test_a_clock_that_is_set_back_opens_nothing_again(database: Database) -> None:
    events = some_events(300, hours=30)
    await record(database, events[::2])
    roll(database, 30)
    roll(database, 3)
    await record(database, events[1::2])
    roll(database, 31)
    drop_rows(database, START_HOUR + 30)
    assert asked(database)[0].requests == 300
