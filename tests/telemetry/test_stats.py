"""Aggregates against a straightforward reference."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, START_SECONDS, UNDRAFTED, finished, rejected
from msgspec import structs
from telemetry.percentiles import by_definition

from app.database import Database
from app.llama_server.timings import EngineReport
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.provenance import Provenance
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.stats import Percentiles, StatsRow, nearest_rank, stats

START = datetime.fromtimestamp(START_SECONDS, UTC)


async def counted(
    recorder: Recorder, database: Database, *events: RequestFinished, **filters: object
) -> dict[object, StatsRow]:
    for event in events:
        recorder.on_request_finished(event)
    await recorder.flush()
    with database.read() as session:
        rows = stats(session, RequestFilters(**filters))  # type: ignore[arg-type]
    return {row.group["profile"]: row for row in rows}


async def test_two_profiles_and_none(recorder: Recorder, database: Database) -> None:
    rows = await counted(
        recorder,
        database,
        finished(0),
        finished(1, context=replace(CONTEXT, revision=4), report=UNDRAFTED, time_to_first_token_us=750_000),
        finished(2, outcome=Outcome.CLIENT_GONE, report=EngineReport(), time_to_first_token_us=None),
        finished(3, context=PLAIN_CONTEXT, report=UNDRAFTED),
        rejected(4),
        rejected(5, profile_id="gemma"),
    )
    assert list(rows) == [None, "gemma", "plain"]
    assert rows["gemma"] == StatsRow(
        group={"profile": "gemma"},
        requests=4,
        outcomes={"completed": 2, "client_gone": 1, "rejected": 1},
        prompt_tokens=60,
        cached_tokens=20,
        generated_tokens=130,
        draft_tokens=50,
        accepted_tokens=40,
        acceptance_rate=0.8,
        generation_tokens_per_second_overall=40.0,
        generation_tokens_per_second=Percentiles(40.0, 40.0, 40.0),
        time_to_first_token_seconds=Percentiles(0.25, 0.75, 0.75),
        time_per_output_token_seconds=Percentiles(0.025, 0.025, 0.025),
        queue_seconds=Percentiles(0.0015, 0.0015, 0.0015),
        percentiles_relative_error=0.0,
        provenance=Provenance([3, 4], ["0123456789abcdef"], ["b11434-abc"], ["CUDA0,CUDA1"], ["revision"]),
    )
    assert rows["plain"].provenance.mixed == []
    assert rows[None].provenance == Provenance([], [], [], [], [])
    assert (rows["plain"].draft_tokens, rows["plain"].accepted_tokens, rows["plain"].acceptance_rate) == (None,) * 3
    nothing = rows[None]
    assert (nothing.requests, nothing.outcomes) == (1, {"rejected": 1})
    assert (nothing.prompt_tokens, nothing.generated_tokens, nothing.generation_tokens_per_second) == (None,) * 3
    assert (nothing.generation_tokens_per_second_overall, nothing.time_to_first_token_seconds) == (None, None)


async def test_what_served_a_group_says_whether_it_is_one_thing(recorder: Recorder, database: Database) -> None:
    """Two profiles are at their first revision, which are two revisions. A group by it is of one again."""
    contexts = [
        replace(CONTEXT, revision=1),
        replace(CONTEXT, revision=1, engine_build="b2"),
        replace(PLAIN_CONTEXT, device_set="cpu"),
    ]
    for number, context in enumerate(contexts):
        recorder.on_request_finished(finished(number, context=context))
    await recorder.flush()
    with database.read() as session:
        (together,) = stats(session, RequestFilters(), ())
        by_build = stats(session, RequestFilters(profile="gemma"), ("engine_build",))
    assert together.provenance == Provenance(
        [1], sorted(["0123456789abcdef", "fedcba9876543210"]), ["b11434-abc", "b2"], ["CUDA0,CUDA1", "cpu"],
        ["revision", "argv_hash", "engine_build", "device_set"],
    )  # fmt: skip
    assert [(row.provenance.engine_build, row.provenance.mixed) for row in by_build] == [
        (["b11434-abc"], []),
        (["b2"], []),
    ]


async def test_a_group_that_only_engines_know_has_a_row(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished())
    await recorder.flush()
    with database.read() as session:
        known, other = stats(session, RequestFilters(), ("profile",), others=[("plain",), ("gemma",)])
    assert (known.group, known.requests) == ({"profile": "gemma"}, 1)
    assert (other.group, other.requests, other.outcomes) == ({"profile": "plain"}, 0, {})
    assert (other.generated_tokens, other.generation_tokens_per_second) == (None, None)


async def test_percentiles_of_the_newest_only_are_not_called_exact(recorder: Recorder, database: Database) -> None:
    for number in range(6):
        recorder.on_request_finished(finished(number, time_to_first_token_us=1_000_000 * (number + 1)))
    await recorder.flush()
    with database.read() as session:
        (whole,) = stats(session, RequestFilters(), (), percentile_rows_most=6)
        (part,) = stats(session, RequestFilters(), (), percentile_rows_most=5)
    assert (whole.percentiles_relative_error, whole.time_to_first_token_seconds) == (0.0, Percentiles(3, 6, 6))
    assert (part.percentiles_relative_error, part.time_to_first_token_seconds) == (None, Percentiles(4, 6, 6))
    assert replace(part, percentiles_relative_error=0.0, time_to_first_token_seconds=None) == replace(
        whole, time_to_first_token_seconds=None
    )


async def test_the_rate_of_acceptance_is_of_the_sums(recorder: Recorder, database: Database) -> None:
    """Not the mean of rates: a long request weighs more. Half-reported drafts weigh nothing."""
    reports = [
        structs.replace(DRAFTED, draft_tokens=10, accepted_tokens=10),
        structs.replace(DRAFTED, draft_tokens=990, accepted_tokens=90),
        structs.replace(DRAFTED, draft_tokens=5000, accepted_tokens=None),
        UNDRAFTED,
    ]
    rows = await counted(recorder, database, *(finished(n, report=report) for n, report in enumerate(reports)))
    assert (rows["gemma"].draft_tokens, rows["gemma"].accepted_tokens) == (1000, 100)
    assert rows["gemma"].acceptance_rate == 0.1


async def test_a_request_without_a_second_token_has_no_rate(recorder: Recorder, database: Database) -> None:
    reports = [
        EngineReport(generated_tokens=1, generation_us=5),
        EngineReport(generated_tokens=101, generation_us=0),
        EngineReport(generated_tokens=101),
        EngineReport(generated_tokens=101, generation_us=2_000_000),
        EngineReport(generated_tokens=11, generation_us=1_000_000),
    ]
    rows = await counted(recorder, database, *(finished(n, report=report) for n, report in enumerate(reports)))
    assert rows["gemma"].generated_tokens == 315
    assert rows["gemma"].generation_tokens_per_second_overall == pytest.approx(110 / 3)
    assert rows["gemma"].generation_tokens_per_second == Percentiles(10.0, 50.0, 50.0)


async def test_percentiles_of_many_against_a_reference(recorder: Recorder, database: Database) -> None:
    chance = random.Random(3)  # noqa: S311
    microseconds = [chance.randrange(1, 10_000_000) for _ in range(777)]
    events = [
        finished(
            number, time_to_first_token_us=us, report=structs.replace(DRAFTED, generated_tokens=2, generation_us=us)
        )
        for number, us in enumerate(microseconds)
    ]
    rows = await counted(recorder, database, *events)
    first = rows["gemma"].time_to_first_token_seconds
    rates = rows["gemma"].generation_tokens_per_second
    assert first is not None
    assert rates is not None
    for percent, value in ((50, first.p50), (90, first.p90), (99, first.p99)):
        assert value == by_definition([us / 1e6 for us in microseconds], percent)
    for percent, value in ((50, rates.p50), (90, rates.p90), (99, rates.p99)):
        assert value == pytest.approx(by_definition([1e6 / us for us in microseconds], percent), rel=1e-12)


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(1, 50, 1), (1, 99, 1), (2, 50, 1), (2, 90, 2), (10, 90, 9), (10, 99, 10), (100, 99, 99), (101, 99, 100)],
)
def test_nearest_rank(count: int, percent: int, expected: int) -> None:
    assert nearest_rank(count, percent) == expected


async def test_filters_restrict_sums_and_percentiles_alike(recorder: Recorder, database: Database) -> None:
    events = [finished(number, time_to_first_token_us=number * 1_000_000) for number in range(10)]
    events.append(finished(11, context=PLAIN_CONTEXT))
    rows = await counted(
        recorder,
        database,
        *events,
        profile="gemma",
        since=START + timedelta(seconds=3),
        until=START + timedelta(seconds=6),
    )
    assert list(rows) == ["gemma"]
    assert rows["gemma"].requests == 3
    assert rows["gemma"].time_to_first_token_seconds == Percentiles(4.0, 5.0, 5.0)


async def test_without_a_group_all_is_one(recorder: Recorder, database: Database) -> None:
    await counted(recorder, database, finished(0), finished(1, context=PLAIN_CONTEXT))
    with database.read() as session:
        (everything,) = stats(session, RequestFilters(), group_by=())
    assert (everything.group, everything.requests) == ({}, 2)


async def test_groups_come_from_the_launch_context(recorder: Recorder, database: Database) -> None:
    await counted(recorder, database, finished(0), finished(1, context=PLAIN_CONTEXT), finished(2))
    with database.read() as session:
        by_method = stats(session, RequestFilters(), group_by=("profile", "method"))
        by_build = stats(session, RequestFilters(), group_by=("engine_build", "revision"))
    assert sum(row.requests for row in by_method) == sum(row.requests for row in by_build) == 3
    assert {row.group["method"] for row in by_method} == {finished(0).context.method, PLAIN_CONTEXT.method}
    assert all(set(row.group) == {"engine_build", "revision"} for row in by_build)


async def test_nothing_recorded_is_no_rows(recorder: Recorder, database: Database) -> None:
    assert await counted(recorder, database) == {}
