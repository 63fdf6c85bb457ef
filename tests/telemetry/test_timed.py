"""Requests with a rate, summed up by hand, while their rows are there and when they are gone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fakes.finished_requests import START_SECONDS, UNDRAFTED, finished
from msgspec import structs
from sqlalchemy import select
from sqlmodel import col
from telemetry.some_requests import record, some_events

from app.database import Database
from app.identifiers import id_time
from app.llama_server.timings import EngineReport
from app.proxy.observer import Outcome, RequestFinished
from app.speculative.speedup import Timed
from app.telemetry.queries import RequestFilters
from app.telemetry.retention import Retention
from app.telemetry.tables import LaunchContextRow
from app.telemetry.timed import SINGLE_ROWS_MOST, timed_requests

START = datetime.fromtimestamp(START_SECONDS, UTC)
# The first moment of an hour: a part of one counts as a whole where its rows are gone.
LATER = START.replace(minute=0, second=0) + timedelta(hours=2)
# Group, context, category.
Sums = dict[tuple[Any, ...], tuple[int, int, int]]


def by_hand(events: Iterable[RequestFinished]) -> Sums:
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for event in events:
        tokens, microseconds, context = event.report.generated_tokens, event.report.generation_us, event.context
        if context is not None and tokens is not None and tokens >= 2 and microseconds:
            key = (context.profile_id, context.method), (context.profile_id, context.revision), event.category
            for place, value in enumerate((1, tokens - 1, microseconds)):
                found[key][place] += value
    return {key: (sums[0], sums[1], sums[2]) for key, sums in found.items()}


def timed(number: int) -> EngineReport:
    return structs.replace(UNDRAFTED, generated_tokens=2 + number, generation_us=1000)


def read(
    database: Database, *, single_rows_most: int = SINGLE_ROWS_MOST, with_blocks: bool = True, **filters: Any
) -> Mapping[tuple[Any, ...], Timed]:
    with database.read() as session:
        contexts = {
            row.id: (row.profile_id, row.revision) for row in session.execute(select(LaunchContextRow)).scalars()
        }
        ids = list(session.execute(select(col(LaunchContextRow.id))).scalars())
        found = timed_requests(
            session,
            RequestFilters(**filters),
            ("profile", "method"),
            ids,
            single_rows_most=single_rows_most,
            with_blocks=with_blocks,
        )
        return {(group, contexts[context], category): timed for (group, context, category), timed in found.items()}


def summed(database: Database, **filters: Any) -> Sums:
    return {key: (each.requests, each.tokens, each.microseconds) for key, each in read(database, **filters).items()}


@pytest.mark.parametrize("are_gone", [False, True])
async def test_sums_are_exact(database: Database, are_gone: bool) -> None:
    events = some_events(700, 60)
    await record(database, events)
    if are_gone:
        clock = START_SECONDS + 100 * 86_400
        Retention(database, days=1, bytes_most=0, clock=lambda: clock).keep_up()
    assert summed(database) == by_hand(events)
    later = [event for event in events if id_time(event.request_id) >= LATER]
    assert summed(database, since=LATER) == by_hand(later)
    assert summed(database, until=LATER, category="code", outcome="client_gone", profile="gemma") == by_hand(
        event for event in events
        if event not in later and event.category == "code" and event.outcome is Outcome.CLIENT_GONE
        and event.profile_id == "gemma"
    )  # fmt: skip


async def test_single_requests_are_told_apart_while_they_are_few(database: Database) -> None:
    """Else runs of them, in the order of time."""
    await record(database, [finished(number, report=timed(number)) for number in range(200)])
    (whole,) = read(database).values()
    assert whole.blocks == [(number + 1, 1000) for number in range(200)]
    (few,) = read(database, single_rows_most=50).values()
    assert len(few.blocks) == 60
    assert few.blocks[:2] == [(1 + 2 + 3 + 4, 4000), (5 + 6 + 7 + 8, 4000)]
    (none,) = read(database, with_blocks=False).values()
    assert none.blocks == [(sum(range(201)), 200_000)]
    assert len({(each.requests, each.tokens, each.microseconds) for each in (whole, few, none)}) == 1


async def test_what_roll_ups_leave_is_told_apart_by_five_minutes(database: Database) -> None:
    """And where there is much of it, or it is asked for without, by hours."""
    await record(database, [finished(60 * number, report=timed(0)) for number in range(600)])
    clock = START_SECONDS + 100 * 86_400
    Retention(database, days=1, bytes_most=0, clock=lambda: clock).keep_up()
    (found,) = read(database).values()
    # From 08:53:20 on: two in what is left of the first five minutes, then five in each.
    assert found.blocks == [(2, 2000), *[(5, 5000)] * 119, (3, 3000)]
    (hours,) = read(database, with_blocks=False).values()
    assert hours.blocks == [(7, 7000), *[(60, 60_000)] * 9, (53, 53_000)]
