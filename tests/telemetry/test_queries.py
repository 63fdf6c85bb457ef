"""What is read back: one request, pages of them, and what the filters leave."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest
from fakes.finished_requests import (
    CONTEXT,
    INSTANCE_ID,
    PLAIN_CONTEXT,
    START_SECONDS,
    UNDRAFTED,
    finished,
    rejected,
)

from app.database import Database
from app.errors import RequestNotFound
from app.identifiers import first_id_at, id_text
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.queries import QueryInvalid, RequestFilters, get_request, list_requests
from app.telemetry.recorder import Recorder
from app.telemetry.records import RequestRecord

START = datetime.fromtimestamp(START_SECONDS, UTC)


async def record(recorder: Recorder, *events: RequestFinished) -> None:
    for event in events:
        recorder.on_request_finished(event)
    await recorder.flush()


def listed(database: Database, limit: int = 1000, cursor: str | None = None, **filters: object) -> list[RequestRecord]:
    with database.read() as session:
        return list(list_requests(session, RequestFilters(**filters), limit, cursor).items)  # type: ignore[arg-type]


async def test_a_record_computes_what_follows_from_the_counts(recorder: Recorder, database: Database) -> None:
    event = finished(1)
    await record(recorder, event)
    (found,) = listed(database)
    assert asdict(found) == {
        "id": id_text(event.request_id),
        "started_at": START + timedelta(seconds=1),
        "profile_id": "gemma",
        "revision": 3,
        "instance_id": id_text(INSTANCE_ID),
        "engine_build": "b11434-abc",
        "argv_hash": "0123456789abcdef",
        "device_set": "CUDA0,CUDA1",
        "requested_model": "gemma",
        "route_reason": "id",
        "endpoint": "chat_completions",
        "stream": True,
        "outcome": "completed",
        "status_code": 200,
        "error": None,
        "queue_seconds": 0.0015,
        "time_to_first_token_seconds": 0.25,
        "duration_seconds": 2.0,
        "prompt_tokens": 30,
        "cached_tokens": 10,
        "generated_tokens": 65,
        "prompt_seconds": 0.2,
        "generation_seconds": 1.6,
        "generation_tokens_per_second": 40.0,
        "draft_tokens": 50,
        "accepted_tokens": 40,
        "acceptance_rate": 0.8,
        "mean_acceptance_length_estimate": 2.6,
        "method": "draft",
        "category": None,
        "finish_reason": "stop",
        "client": None,
    }


async def test_the_fields_are_those_of_the_interface() -> None:
    names = (
        "id, started_at, profile_id, revision, instance_id, engine_build, argv_hash, device_set, requested_model, "
        "route_reason, endpoint, stream, outcome, status_code, error, queue_seconds, time_to_first_token_seconds, "
        "duration_seconds, prompt_tokens, cached_tokens, generated_tokens, prompt_seconds, generation_seconds, "
        "generation_tokens_per_second, draft_tokens, accepted_tokens, acceptance_rate, "
        "mean_acceptance_length_estimate, method, category, finish_reason, client"
    )
    assert list(RequestRecord.__dataclass_fields__) == names.split(", ")


async def test_without_drafts_all_that_follows_from_them_is_null(recorder: Recorder, database: Database) -> None:
    await record(recorder, finished(report=UNDRAFTED, time_to_first_token_us=None, stream=False))
    (found,) = listed(database)
    assert (found.draft_tokens, found.accepted_tokens) == (None, None)
    assert (found.acceptance_rate, found.mean_acceptance_length_estimate) == (None, None)
    assert (found.time_to_first_token_seconds, found.stream) == (None, False)
    assert found.generation_tokens_per_second == 40.0
    assert found.method == "draft"


async def test_one_token_has_no_rate(recorder: Recorder, database: Database) -> None:
    await record(recorder, finished(report=EngineReport(generated_tokens=1, generation_us=0)))
    (found,) = listed(database)
    assert (found.generated_tokens, found.generation_seconds) == (1, 0.0)
    assert found.generation_tokens_per_second is None


async def test_a_rejected_request_has_no_provenance(recorder: Recorder, database: Database) -> None:
    await record(recorder, rejected(0), rejected(1, profile_id="gemma", status_code=429))
    known, unknown = listed(database)
    assert (known.profile_id, known.revision, known.method, known.instance_id) == ("gemma", None, None, None)
    assert (unknown.profile_id, unknown.requested_model) == (None, "nobody/knows-this")
    assert (unknown.outcome, unknown.status_code, unknown.error) == ("rejected", 404, "no profile answers to it")


async def test_every_endpoint_and_outcome_comes_back(recorder: Recorder, database: Database) -> None:
    events = [
        finished(number, outcome=outcome, endpoint=endpoint)
        for number, (outcome, endpoint) in enumerate((o, e) for o in Outcome for e in Endpoint)
    ]
    await record(recorder, *events)
    found = [(record.outcome, record.endpoint) for record in reversed(listed(database))]
    assert found == [(event.outcome, event.endpoint) for event in events]


async def test_pages_are_newest_first_and_miss_nothing(recorder: Recorder, database: Database) -> None:
    contexts = (CONTEXT, PLAIN_CONTEXT, replace(CONTEXT, revision=4))
    events = [finished(number, context=contexts[number % 3]) for number in range(25)]
    await record(recorder, *events)
    for profile in (None, "gemma"):
        expected = [id_text(event.request_id) for event in reversed(events) if profile in (None, event.profile_id)]
        collected: list[str] = []
        cursor = None
        pages = 0
        while pages == 0 or cursor is not None:
            with database.read() as session:
                page = list_requests(session, RequestFilters(profile=profile), 5, cursor)
            collected += [record.id for record in page.items]
            cursor = page.next_cursor
            pages += 1
        assert collected == expected
        assert pages == -(-len(expected) // 5)


async def test_a_page_does_not_shift_when_a_new_row_arrives(recorder: Recorder, database: Database) -> None:
    await record(recorder, *(finished(number) for number in range(4)))
    first = listed(database, limit=2)
    await record(recorder, finished(9))
    second = listed(database, 2, first[-1].id)
    assert [record.started_at for record in second] == [START + timedelta(seconds=1), START]


async def test_filters_restrict_alone_and_together(recorder: Recorder, database: Database) -> None:
    await record(
        recorder,
        finished(0),
        finished(1, context=PLAIN_CONTEXT, report=UNDRAFTED),
        finished(2, outcome=Outcome.CLIENT_GONE),
        rejected(3, profile_id="gemma"),
        rejected(4),
        finished(5, context=replace(CONTEXT, method="none")),
    )

    def numbers(**filters: object) -> list[int]:
        found = listed(database, **filters)
        return [round((record.started_at - START).total_seconds()) for record in found]

    assert numbers() == [5, 4, 3, 2, 1, 0]
    assert numbers(profile="gemma") == [5, 3, 2, 0]
    assert numbers(profile="nobody") == []
    assert numbers(method="none") == [5, 1]
    assert numbers(profile="gemma", method="none") == [5]
    assert numbers(outcome="rejected") == [4, 3]
    assert numbers(outcome="rejected", profile="gemma") == [3]
    assert numbers(since=START + timedelta(seconds=2), until=START + timedelta(seconds=4)) == [3, 2]
    assert numbers(since=START + timedelta(seconds=2), profile="gemma", outcome="completed") == [5]


@pytest.mark.parametrize("milliseconds", [543_444_077_578, 1_760_000_000_123, 2_172_482_469_548, 2_174_129_890_180])
async def test_times_are_exact_to_the_millisecond(recorder: Recorder, database: Database, milliseconds: int) -> None:
    """A float of seconds cannot hold every millisecond; the bounds must not be off by one for that."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    await record(recorder, finished(request_id=milliseconds << 20))
    step = timedelta(microseconds=1)
    assert len(listed(database, since=moment)) == 1
    assert len(listed(database, since=moment + step)) == 0
    assert len(listed(database, until=moment)) == 0
    assert len(listed(database, until=moment + step)) == 1
    (found,) = listed(database)
    assert found.started_at == moment


async def test_times_beyond_all_ids_are_no_error(recorder: Recorder, database: Database) -> None:
    await record(recorder, finished())
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert len(listed(database, since=earliest, until=latest)) == 1
    assert listed(database, since=latest) == []


async def test_questions_that_make_no_sense_name_the_parameter(database: Database) -> None:
    with pytest.raises(QueryInvalid, match="outcome: 'won' is none of completed, rejected") as caught:
        listed(database, outcome="won")
    assert caught.value.details["problems"][0]["field"] == "outcome"
    with pytest.raises(QueryInvalid, match="cursor: "):
        listed(database, cursor="nonsense")


async def test_one_request_by_its_own_id_or_the_client_s(recorder: Recorder, database: Database) -> None:
    events = [finished(number, client_request_id="same") for number in range(2)]
    await record(recorder, *events, finished(2, client_request_id="other " + "x" * 300))
    with database.read() as session:
        assert get_request(session, id_text(events[0].request_id)).id == id_text(events[0].request_id)
        assert get_request(session, "same").id == id_text(events[1].request_id)
        assert get_request(session, "other " + "x" * 300).started_at == START + timedelta(seconds=2)
        for missing in ("nothing", id_text(first_id_at(START_SECONDS * 1000)), ""):
            with pytest.raises(RequestNotFound, match="is recorded"):
                get_request(session, missing)


async def test_a_client_s_id_may_look_like_ours(recorder: Recorder, database: Database) -> None:
    await record(recorder, finished(0, client_request_id="00000000000000aa"))
    with database.read() as session:
        assert get_request(session, "00000000000000aa").started_at == START


async def test_the_list_of_a_profile_is_read_from_the_index(recorder: Recorder, database: Database) -> None:
    await record(recorder, finished())
    with database.read() as session:
        plan = session.connection().exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT id FROM request WHERE context_id = 1 AND id < 9 ORDER BY id DESC LIMIT 9"
        )
        steps = [row[3] for row in plan]
    assert steps == ["SEARCH request USING COVERING INDEX ix_request_context_id (context_id=? AND rowid<?)"]
