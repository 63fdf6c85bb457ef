"""Windows in the database, and what they come to."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.acceptance_windows import window
from fakes.finished_requests import CONTEXT, START_SECONDS, finished
from sqlalchemy import text
from telemetry.window_rows import settled, told, written

from app.database import Database
from app.telemetry.engine_acceptance import EngineAcceptance
from app.telemetry.recorder import Recorder
from app.telemetry.windows import RecordedWindow, WindowRecorder

OTHER = replace(CONTEXT, profile_id="other", method="mtp", revision=1)
START = datetime.fromtimestamp(START_SECONDS, UTC)
ONE = EngineAcceptance(10, 28, 21, 0.75, 3.1, [0.9, 0.8, 0.4], 1)


def test_a_window_is_a_row_of_the_same_context_as_the_requests(database: Database, recorder: Recorder) -> None:
    recorder.on_request_finished(finished(0))
    written(database, [window(0), window(1)])
    with database.read() as session:
        rows = [dict(row) for row in session.execute(text("SELECT * FROM acceptance_window ORDER BY id")).mappings()]
        requests = session.execute(text("SELECT context_id, instance_id FROM request")).all()
        assert session.execute(text("SELECT count(*) FROM launch_context")).scalar() == 1
    assert [(row["context_id"], row["instance_id"]) for row in rows] == requests * 2
    first = rows[0]
    assert first["ended_at_milliseconds"] - first["started_at_milliseconds"] == 15_000
    assert first["id"] >> 20 == first["ended_at_milliseconds"]
    assert (first["drafts"], first["draft_tokens"], first["accepted_tokens"]) == (10, 28, 21)
    assert (first["accepted_by_position"], first["rounded_to"]) == ("[9,8,4]", 1)
    assert (first["generated_tokens"], first["generation_us"]) == (32, 2713)


def test_what_was_not_told_is_null(database: Database) -> None:
    written(database, [window(drafts=None, accepted_by_position=None, generated_tokens=None)])
    found = told(database, "profile")[("gemma",)]
    assert (found.drafts, found.mean_acceptance_length, found.acceptance_rate_by_position) == (None, None, None)
    assert (found.draft_tokens, found.acceptance_rate) == (28, 0.75)


def test_ratios_are_of_sums(database: Database) -> None:
    assert told(database, "profile") == told(database) == {}
    written(database, [window(0)])
    assert told(database, "profile") == {("gemma",): ONE}
    written(database, [window(1, drafts=30, draft_tokens=72, accepted_tokens=4, accepted_by_position=(4,))])
    expected = EngineAcceptance(40, 100, 25, 0.25, 1 + 25 / 40, [13 / 40, 8 / 40, 4 / 40], 1)
    assert told(database, "profile") == {("gemma",): expected}
    assert told(database) == {(): expected}


def test_drafts_may_be_longer_than_an_answer_of_sqlite_is_wide(database: Database) -> None:
    written(database, [window(0, accepted_by_position=tuple(range(2500))), window(1, accepted_by_position=(5,))])
    found = told(database, "profile", "hour")
    (by_position,) = (each.acceptance_rate_by_position for each in found.values())
    assert by_position == [5 / 20, *(position / 20 for position in range(1, 2500))]


def test_one_window_without_positions_leaves_the_group_without_them(database: Database) -> None:
    written(database, [window(0), window(1, accepted_by_position=None)])
    assert told(database)[()].acceptance_rate_by_position is None
    assert told(database)[()].mean_acceptance_length == pytest.approx(3.1)


def test_the_coarsest_rounding_is_told(database: Database) -> None:
    written(database, [window(0, rounded_to=100), window(1, rounded_to=10), window(2)])
    assert told(database)[()].rounded_to == 100


def test_groups_and_filters(database: Database) -> None:
    written(database, [window(0), window(1, context=OTHER), window(300), window(301, context=OTHER)])
    assert {key: found.drafts for key, found in told(database, "method", "profile").items()} == {
        ("draft", "gemma"): 20,
        ("mtp", "other"): 20,
    }
    assert {key: found.drafts for key, found in told(database, "revision", "engine_build").items()} == {
        (1, "b11434-abc"): 20,
        (3, "b11434-abc"): 20,
    }
    assert {key: found.drafts for key, found in told(database, "hour", profile="gemma").items()} == {
        ("2025-10-09T08:00:00Z",): 10,
        ("2025-10-09T10:00:00Z",): 10,
    }
    assert {key: found.drafts for key, found in told(database, "profile", method="mtp").items()} == {("other",): 20}
    since, until = START + timedelta(seconds=31), START + timedelta(hours=2)
    assert told(database, since=until) == told(database, until=START) == told(database, profile="nobody") == {}
    assert {key: found.drafts for key, found in told(database, "profile", since=since, until=until).items()} == {
        ("gemma",): 10,
        ("other",): 10,
    }


@pytest.mark.parametrize("group_by", [("category",), ("profile", "category"), ("anything",)])
def test_what_windows_cannot_tell_they_do_not(database: Database, group_by: tuple[str, ...]) -> None:
    written(database, [window()])
    assert told(database, *group_by) == {}
    assert told(database, outcome="completed") == told(database, category="code") == {}
    assert len(told(database)) == 1


def test_a_closed_database_costs_nobody_anything(database: Database) -> None:
    database.close()
    recorder = Recorder(database)
    WindowRecorder(recorder.take).on_window(window())
    assert recorder.lost_rows == 1


def test_a_window_that_is_told_twice_counts_once(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        recorder.take(RecordedWindow(7, window()))
        settled(database)
    assert "rows were recorded before" in caplog.text
    assert recorder.lost_rows == 1
    assert told(database)[()].drafts == 10
