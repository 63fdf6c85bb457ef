"""From the event on the loop to the row on disk."""

import logging
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.finished_requests import CONTEXT, PLAIN_CONTEXT, finished, rejected
from sqlalchemy import text
from sqlmodel import Session, col, func, select

from app.database import Database
from app.events import EventBus
from app.llama_server.timings import EngineReport
from app.proxy.observer import RequestFinished
from app.telemetry.recorder import Recorder
from app.telemetry.tables import LabelRow, LaunchContextRow, RequestRow


def rows(database: Database) -> list[RequestRow]:
    with database.read() as session:
        return list(session.exec(select(RequestRow).order_by(col(RequestRow.id))))


def texts(database: Database) -> dict[int | None, str]:
    with database.read() as session:
        return {row.id: row.text for row in session.exec(select(LabelRow))}


async def test_a_row_holds_what_was_told(recorder: Recorder, database: Database) -> None:
    event = finished(client_request_id="from-the-client", error="late words")
    recorder.on_request_finished(event)
    await recorder.flush()
    (row,) = rows(database)
    labels = texts(database)
    assert row.model_dump() == {
        "id": event.request_id,
        "context_id": 1,
        "instance_id": event.instance_id,
        "requested_model_label": row.requested_model_label,
        "route_reason_label": row.route_reason_label,
        "endpoint_code": 1,
        "stream": True,
        "outcome_code": 1,
        "status_code": 200,
        "error_label": row.error_label,
        "queue_us": 1500,
        "time_to_first_token_us": 250_000,
        "duration_us": 2_000_000,
        "prompt_tokens": 30,
        "cached_tokens": 10,
        "generated_tokens": 65,
        "prompt_us": 200_000,
        "generation_us": 1_600_000,
        "draft_tokens": 50,
        "accepted_tokens": 40,
        "category_code": None,
        "finish_reason_label": row.finish_reason_label,
        "client_label": None,
        "client_request_id": "from-the-client",
        "client_request_key": "fromclient",
    }
    assert labels[row.requested_model_label] == "gemma"
    assert labels[row.route_reason_label] == "id"
    assert labels[row.error_label] == "late words"
    assert labels[row.finish_reason_label] == "stop"


async def test_the_name_of_the_key_is_kept(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished(client="open-webui"))
    await recorder.flush()
    (row,) = rows(database)
    assert texts(database)[row.client_label] == "open-webui"


async def test_what_was_not_reported_is_null(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(rejected(error=None, status_code=None, requested_model=None))
    await recorder.flush()
    (row,) = rows(database)
    told = {name for name, value in row.model_dump().items() if value is not None}
    assert told == {"id", "endpoint_code", "stream", "outcome_code", "queue_us", "duration_us"}
    assert texts(database) == {}


async def test_zero_stays_zero(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished(report=EngineReport(cached_tokens=0, draft_tokens=0, accepted_tokens=0)))
    await recorder.flush()
    (row,) = rows(database)
    assert (row.cached_tokens, row.draft_tokens, row.accepted_tokens, row.prompt_tokens) == (0, 0, 0, None)


async def test_contexts_and_texts_are_written_once(recorder: Recorder, database: Database) -> None:
    for number in range(20):
        recorder.on_request_finished(finished(number, context=(CONTEXT, PLAIN_CONTEXT)[number % 2]))
        if number % 5 == 0:
            await recorder.flush()
    await recorder.flush()
    # Another process, that has nothing in its memory yet.
    later = Recorder(database)
    later.on_request_finished(finished(20))
    later.on_request_finished(finished(21, context=replace(CONTEXT, revision=4)))
    await later.flush()
    with database.read() as session:
        contexts = session.exec(select(LaunchContextRow).order_by(col(LaunchContextRow.id))).all()
    assert [(row.profile_id, row.revision, row.method) for row in contexts] == [
        ("gemma", 3, "draft"),
        ("plain", 1, "none"),
        ("gemma", 4, "draft"),
    ]
    assert (contexts[0].engine_build, contexts[0].argv_hash, contexts[0].device_set) == (
        "b11434-abc",
        "0123456789abcdef",
        "CUDA0,CUDA1",
    )
    assert sorted(texts(database).values()) == ["gemma", "id", "stop"]
    assert len(rows(database)) == 22


async def test_a_profile_that_served_nothing_has_a_context_of_its_own(recorder: Recorder, database: Database) -> None:
    for number in range(3):
        recorder.on_request_finished(rejected(number, profile_id="gemma"))
    await recorder.flush()
    again = Recorder(database)
    again.on_request_finished(rejected(3, profile_id="gemma"))
    await again.flush()
    with database.read() as session:
        (context,) = session.exec(select(LaunchContextRow)).all()
    assert context.model_dump(exclude={"id", "profile_id"}) == dict.fromkeys(
        ("revision", "engine_build", "argv_hash", "device_set", "method")
    )
    assert {row.context_id for row in rows(database)} == {context.id}


async def test_a_burst_keeps_every_row(recorder: Recorder, database: Database) -> None:
    bus = EventBus()
    bus.subscribe(RequestFinished, recorder.on_request_finished)
    for number in range(5000):
        bus.publish(finished(number))
        # At most one piece for the recorder may be queued, and one be under way.
        assert database.backlog <= 2
    await recorder.flush()
    assert len(rows(database)) == 5000
    assert recorder.lost_rows == 0


async def test_many_different_texts_are_all_kept(recorder: Recorder, database: Database) -> None:
    """More than are remembered, within one batch and over several."""
    for number in range(6000):
        recorder.on_request_finished(finished(number, requested_model=f"model-{number % 5500}"))
        if number == 5900:
            await recorder.flush()
    await recorder.flush()
    labels = texts(database)
    assert len(labels) == 5500 + 2
    assert [labels[row.requested_model_label] for row in rows(database)] == [f"model-{n % 5500}" for n in range(6000)]


async def test_the_engine_s_error_counts_where_the_relay_has_none(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished(0, report=EngineReport(error="from the engine")))
    recorder.on_request_finished(finished(1, report=EngineReport(error="from the engine"), error="from the relay"))
    await recorder.flush()
    labels = texts(database)
    assert [labels[row.error_label] for row in rows(database)] == ["from the engine", "from the relay"]


async def test_text_that_is_no_text_is_stored_all_the_same(recorder: Recorder, database: Database) -> None:
    recorder.on_request_finished(finished(requested_model="half \ud800 pair", error="x" * 10_000, route_reason=""))
    await recorder.flush()
    assert recorder.lost_rows == 0
    assert {"half ? pair", "x" * 500, ""} <= set(texts(database).values())


async def test_a_request_told_twice_costs_no_other(
    recorder: Recorder, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (0, 1, 1, 2):
        recorder.on_request_finished(finished(number))
    await recorder.flush()
    assert len(rows(database)) == 3
    assert recorder.lost_rows == 1
    assert "1 rows were recorded before" in caplog.text


async def test_a_failing_insert_is_counted_and_forgotten(
    recorder: Recorder, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbers of texts and contexts that were rolled back must not be pointed at afterwards."""
    await database.write(lambda session: session.execute(text("ALTER TABLE request RENAME TO elsewhere")) and None)
    with caplog.at_level(logging.ERROR):
        recorder.on_request_finished(finished(0))
        recorder.on_request_finished(finished(1))
        await recorder.flush()
    assert recorder.lost_rows == 2
    assert "2 rows were not recorded" in caplog.text
    await database.write(lambda session: session.execute(text("ALTER TABLE elsewhere RENAME TO request")) and None)
    recorder.on_request_finished(finished(2, requested_model="other", context=PLAIN_CONTEXT))
    recorder.on_request_finished(finished(3))
    await recorder.flush()
    assert recorder.lost_rows == 2
    labels = texts(database)
    assert [labels[row.requested_model_label] for row in rows(database)] == ["other", "gemma"]
    with database.read() as session:
        joined = session.exec(
            select(LaunchContextRow.profile_id)
            .join(RequestRow, col(RequestRow.context_id) == LaunchContextRow.id)
            .order_by(col(RequestRow.id))
        ).all()
    assert joined == ["plain", "gemma"]


async def test_a_closed_database_is_counted_not_raised(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'closed.db'}")
    database.migrate()
    database.start()
    recorder = Recorder(database)
    database.close()
    recorder.on_request_finished(finished())
    await recorder.flush()
    assert recorder.lost_rows == 1


async def test_closing_the_database_writes_what_waits(tmp_path: Path) -> None:
    """Without a flush: the piece is queued already, and close() works the queue off."""
    url = f"sqlite:///{tmp_path / 'closing.db'}"
    database = Database(url, linger_seconds=600)
    database.migrate()
    database.start()
    recorder = Recorder(database)
    for number in range(10):
        recorder.on_request_finished(finished(number))
    database.close()
    reopened = Database(url)
    with reopened.read() as session:
        assert session.exec(select(func.count()).select_from(RequestRow)).one() == 10
    reopened.close()


async def test_a_full_list_refuses_and_counts(database: Database) -> None:
    recorder = Recorder(database, waiting_most=3)
    started: Future[None] = Future()
    release: Future[None] = Future()

    def hold(_session: Session) -> None:
        started.set_result(None)
        release.result(timeout=10)

    held = database.submit(hold)
    started.result(timeout=10)
    for number in range(5):
        recorder.on_request_finished(finished(number))
    release.set_result(None)
    held.result(timeout=10)
    await recorder.flush()
    assert len(rows(database)) == 3
    assert recorder.lost_rows == 2
