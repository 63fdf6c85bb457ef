"""Groups of recorded requests, by any names together: each has counts, rates and percentiles of its own."""

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, START_SECONDS, UNDRAFTED, finished, rejected
from msgspec import structs
from sqlalchemy import text
from telemetry.percentiles import by_definition

from app.database import Database
from app.identifiers import first_id_at, id_time
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.provenance import Provenance
from app.telemetry.queries import QueryInvalid, RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.stats import Percentiles, StatsRow, stats
from app.telemetry.stats_groups import GROUPS_MOST

START = datetime.fromtimestamp(START_SECONDS, UTC)


async def grouped(
    recorder: Recorder, database: Database, events: Iterable[RequestFinished], *group_by: str
) -> list[StatsRow]:
    for event in events:
        recorder.on_request_finished(event)
    await recorder.flush()
    with database.read() as session:
        return stats(session, RequestFilters(), group_by)


async def test_categories_of_a_profile_have_rates_and_percentiles_of_their_own(
    recorder: Recorder, database: Database
) -> None:
    """By hand: code makes 10 and 30 tokens/s and takes half of 40 drafts, a translation 100 tokens/s without drafts."""
    slow = structs.replace(DRAFTED, generated_tokens=11, generation_us=1_000_000, draft_tokens=10, accepted_tokens=2)
    fast = structs.replace(DRAFTED, generated_tokens=61, generation_us=2_000_000, draft_tokens=30, accepted_tokens=18)
    plain = structs.replace(UNDRAFTED, generated_tokens=101, generation_us=1_000_000)
    events = [
        finished(0, category="code", report=slow, time_to_first_token_us=100_000),
        finished(1, category="code", report=fast, time_to_first_token_us=300_000),
        finished(2, category="code", outcome=Outcome.CLIENT_GONE, report=EngineReport(), time_to_first_token_us=None),
        finished(3, category="translation", report=plain, time_to_first_token_us=200_000),
        finished(4, report=EngineReport(), time_to_first_token_us=None, endpoint=Endpoint.TOKENIZE),
        finished(5, category="code", context=PLAIN_CONTEXT, report=plain),
    ]
    uncategorised, code, translation, other_profile = await grouped(recorder, database, events, "profile", "category")
    assert code == StatsRow(
        group={"profile": "gemma", "category": "code"},
        requests=3,
        outcomes={"completed": 2, "client_gone": 1},
        prompt_tokens=60,
        cached_tokens=20,
        generated_tokens=72,
        draft_tokens=40,
        accepted_tokens=20,
        acceptance_rate=0.5,
        generation_tokens_per_second_overall=pytest.approx(70 / 3),
        generation_tokens_per_second=Percentiles(10.0, 30.0, 30.0),
        time_to_first_token_seconds=Percentiles(0.1, 0.3, 0.3),
        time_per_output_token_seconds=Percentiles(pytest.approx(1 / 30), 0.1, 0.1),
        queue_seconds=Percentiles(0.0015, 0.0015, 0.0015),
        percentiles_relative_error=0.0,
        provenance=Provenance([3], ["0123456789abcdef"], ["b11434-abc"], ["CUDA0,CUDA1"], []),
    )
    assert translation.group == {"profile": "gemma", "category": "translation"}
    assert translation.generation_tokens_per_second == Percentiles(100.0, 100.0, 100.0)
    assert (translation.requests, translation.acceptance_rate) == (1, None)
    assert uncategorised.group == {"profile": "gemma", "category": None}
    assert (uncategorised.requests, uncategorised.generation_tokens_per_second) == (1, None)
    assert other_profile.group == {"profile": "plain", "category": "code"}
    assert other_profile.time_to_first_token_seconds == Percentiles(0.25, 0.25, 0.25)


async def test_an_hour_begins_with_its_first_millisecond(recorder: Recorder, database: Database) -> None:
    # The first request comes at 08:53:20; what counts is when requests came, not when they ended.
    events = [finished(seconds) for seconds in (0, 399, 399.999, 400, 3_999.999, 4_000)]
    rows = await grouped(recorder, database, events, "hour")
    assert [(row.group["hour"], row.requests) for row in rows] == [
        ("2025-10-09T08:00:00Z", 3),
        ("2025-10-09T09:00:00Z", 2),
        ("2025-10-09T10:00:00Z", 1),
    ]


NAMES = ("profile", "revision", "method", "category", "hour")
KEYS: dict[str, Callable[[RequestFinished], object]] = {
    "profile": lambda event: event.profile_id,
    "revision": lambda event: event.context.revision if event.context else None,
    "method": lambda event: event.context.method if event.context else None,
    "category": lambda event: event.category,
    "hour": lambda event: f"{id_time(event.request_id).replace(minute=0, second=0):%Y-%m-%dT%H:%M:%SZ}",
}


async def test_any_combination_of_names_against_a_reference(recorder: Recorder, database: Database) -> None:
    chance = random.Random(5)  # noqa: S311
    events = []
    for number in range(300):
        context = replace(chance.choice((CONTEXT, PLAIN_CONTEXT)), revision=chance.randrange(1, 4))
        us = chance.randrange(1, 10_000_000)
        shape = {"category": chance.choice((None, "code", "qa")), "time_to_first_token_us": us}
        report = structs.replace(DRAFTED, generated_tokens=2, generation_us=us)
        make = chance.choice((finished, finished, rejected))
        more = {"profile_id": None} if make is rejected else {"context": context, "report": report, **shape}
        events.append(make(number * 40, **more))
    await grouped(recorder, database, events)
    combinations = [names for count in range(6) for names in itertools.combinations(NAMES, count)]
    with database.read() as session:
        for names in combinations:
            expected = defaultdict(list)
            for event in events:
                expected[tuple(KEYS[name](event) for name in names)].append(event)
            rows = stats(session, RequestFilters(), names)
            assert {tuple(row.group.values()): counted_up(row) for row in rows} == {
                key: counted_by_hand(members) for key, members in expected.items()
            }, names


def counted_up(row: StatsRow) -> tuple[object, ...]:
    first, rates = row.time_to_first_token_seconds, row.generation_tokens_per_second
    return (
        row.requests,
        row.prompt_tokens,
        None if first is None else (first.p50, first.p90, first.p99),
        None if rates is None else tuple(round(rate, 6) for rate in (rates.p50, rates.p90, rates.p99)),
    )


def counted_by_hand(members: list[RequestFinished]) -> tuple[object, ...]:
    times = [event.time_to_first_token_us / 1e6 for event in members if event.time_to_first_token_us is not None]
    rates = [round(1e6 / event.report.generation_us, 6) for event in members if event.report.generation_us is not None]
    prompts = [event.report.prompt_tokens for event in members if event.report.prompt_tokens is not None]
    return (
        len(members),
        sum(prompts) if prompts else None,
        tuple(by_definition(times, percent) for percent in (50, 90, 99)) if times else None,
        tuple(by_definition(rates, percent) for percent in (50, 90, 99)) if rates else None,
    )


async def test_a_name_that_is_given_twice_counts_once(recorder: Recorder, database: Database) -> None:
    (row,) = await grouped(recorder, database, [finished(0)], "category", "profile", "category")
    assert row.group == {"category": None, "profile": "gemma"}


async def test_more_groups_than_anybody_reads_are_refused(recorder: Recorder, database: Database) -> None:
    hours = [finished(hour * 3600) for hour in range(GROUPS_MOST + 1)]
    with pytest.raises(QueryInvalid, match="group_by: over 10000 groups: group by less, or restrict by `since`"):
        await grouped(recorder, database, hours, "hour")
    with database.read() as session:
        few = stats(session, RequestFilters(since=START + timedelta(hours=2)), ("hour",))
    assert len(few) == GROUPS_MOST - 1


MANY_ROWS = """
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 199999)
INSERT INTO request (id, endpoint_code, stream, outcome_code, duration_us, category_code,
                     time_to_first_token_us, generated_tokens, generation_us)
SELECT :first + :hour * (n % 100) + n, 1, 1, 1, 1, 1 + n % 8, n, 2, n + 1 FROM numbers
"""


async def test_two_hundred_thousand_rows_are_summed_up_in_a_moment(database: Database) -> None:
    """Half a second of one processor; the bound is far from that, since nobody knows which."""
    first = {"first": finished(0).request_id, "hour": first_id_at(3_600_000)}
    await database.write(lambda session: session.connection().execute(text(MANY_ROWS), first).rowcount)
    began = time.thread_time()
    with database.read() as session:
        found = stats(session, RequestFilters(), ("category", "hour"))
    took_seconds = time.thread_time() - began
    assert sum(row.requests for row in found) == 200_000
    assert took_seconds < 5


@pytest.mark.parametrize(
    ("names", "named"), [(("profile", "weather"), "'weather'"), (("Hour", "hour", "day"), "'Hour', 'day'")]
)
def test_unknown_groups_are_named(database: Database, names: tuple[str, ...], named: str) -> None:
    with (
        database.read() as session,
        pytest.raises(
            QueryInvalid,
            match=f"group_by: {named} cannot be grouped by; "
            "profile, revision, method, engine_build, argv_hash, device_set, category, hour can",
        ),
    ):
        stats(session, RequestFilters(), group_by=names)
