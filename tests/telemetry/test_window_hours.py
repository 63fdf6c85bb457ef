"""Old windows become one for each hour of a life, and say what they said."""

from dataclasses import replace
from typing import Any

from fakes.acceptance_windows import window
from fakes.finished_requests import CONTEXT, INSTANCE_ID, START_SECONDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, text
from telemetry.window_rows import settled, told, written

from app.database import Database
from app.telemetry.engine_acceptance import EngineAcceptance
from app.telemetry.tables import AcceptanceWindowRow
from app.telemetry.window_hours import WindowHours

DAY_SECONDS = 24 * 3600
# 240 windows are an hour; the first ends at 08:53:35.
HOUR = 240
OTHER = replace(CONTEXT, method="mtp")


def rows(database: Database) -> list[dict[str, Any]]:
    with database.read() as session:
        return [dict(row) for row in session.execute(text("SELECT * FROM acceptance_window ORDER BY id")).mappings()]


async def put_together(database: Database, seconds_later: float) -> None:
    await WindowHours(database, clock=lambda: START_SECONDS + seconds_later).put_together()


async def test_an_old_hour_becomes_one_row(database: Database) -> None:
    written(database, [window(0), window(1, accepted_by_position=(1, 0, 0, 5), rounded_to=10), window(HOUR)])
    apart = rows(database)
    before = told(database, "hour")
    await put_together(database, DAY_SECONDS + 3600)
    together, later = rows(database)
    assert later == apart[2]
    assert together == {
        **apart[1],
        "started_at_milliseconds": apart[0]["started_at_milliseconds"],
        "drafts": 20,
        "draft_tokens": 56,
        "accepted_tokens": 42,
        "accepted_by_position": "[10,8,4,5]",
        "generated_tokens": 64,
        "generation_us": 5426,
        "rounded_to": 10,
    }
    assert told(database, "hour") == before
    await put_together(database, DAY_SECONDS + 3600)
    assert rows(database) == [together, later]


async def test_what_is_younger_than_six_hours_stays_apart(database: Database) -> None:
    written(database, [window(0), window(1)])
    # The hour of the windows ends at 09:00:00, and they began at 08:53:20.
    await put_together(database, 6 * 3600 + 399)
    assert len(rows(database)) == 2
    await put_together(database, 6 * 3600 + 400)
    assert len(rows(database)) == 1


async def test_lives_and_launches_stay_apart(database: Database) -> None:
    lives = [window(0), window(1, instance_id=INSTANCE_ID + 1), window(2, context=OTHER), window(3, context=OTHER)]
    written(database, lives)
    await put_together(database, 10 * DAY_SECONDS)
    assert [(row["instance_id"], row["drafts"]) for row in rows(database)] == [
        (INSTANCE_ID, 10),
        (INSTANCE_ID + 1, 10),
        (INSTANCE_ID, 20),
    ]


async def test_what_was_not_told_stays_unknown(database: Database) -> None:
    written(
        database, [window(0, drafts=None, generated_tokens=None), window(1, drafts=None, accepted_by_position=None)]
    )
    await put_together(database, 10 * DAY_SECONDS)
    (row,) = rows(database)
    assert (row["drafts"], row["generated_tokens"], row["accepted_by_position"]) == (None, 32, None)


windows = st.builds(
    window,
    st.integers(0, 3 * HOUR),
    drafts=st.none() | st.integers(0, 10**9),
    accepted_tokens=st.integers(0, 10**9),
    accepted_by_position=st.lists(st.integers(0, 10**9), max_size=4).map(tuple),
    context=st.sampled_from([CONTEXT, OTHER]),
    rounded_to=st.sampled_from([1, 10]),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(windows, max_size=8))
async def test_every_answer_is_as_before(database: Database, some: list[Any]) -> None:
    written(database, some)
    groups: list[tuple[str, ...]] = [(), ("method",), ("profile", "hour")]
    before: list[dict[tuple[Any, ...], EngineAcceptance]] = [told(database, *names) for names in groups]
    await put_together(database, 10 * DAY_SECONDS)
    assert [told(database, *names) for names in groups] == before
    database.submit(lambda session: session.execute(delete(AcceptanceWindowRow)))
    settled(database)
