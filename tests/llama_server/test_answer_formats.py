"""Answers as a real engine of build 11434 wrote them, shortened where nothing is read."""

import json

import pytest

from app.llama_server.answer_formats import (
    ANTHROPIC,
    CHAT,
    NATIVE,
    OTHER,
    RANKING,
    RESPONSES,
    VECTORS,
    AnswerFormat,
)
from app.llama_server.timings import EngineReport

TIMINGS = {"cache_n": 58, "prompt_n": 1, "prompt_ms": 0.204, "predicted_n": 6, "predicted_ms": 0.624}
TIMED = EngineReport(59, 58, 6, 204, 624)
USAGE = {"input_tokens": 59, "output_tokens": 6, "total_tokens": 65, "input_tokens_details": {"cached_tokens": 58}}
START = {
    "type": "message_start",
    "message": {
        "id": "chatcmpl-x",
        "content": [],
        "usage": {"cache_read_input_tokens": 58, "input_tokens": 1, "output_tokens": 0},
    },
}
BLOCK = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
DELTA = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 6}}
STOP = {"type": "message_stop"}
PARTIAL = {"index": 0, "content": "d", "tokens": [100], "stop": False, "tokens_predicted": 1, "tokens_evaluated": 59}
LAST = {
    "index": 0,
    "content": "",
    "stop": True,
    "stop_type": "limit",
    "tokens_predicted": 6,
    "tokens_evaluated": 59,
    "prompt": "hello",
    "timings": TIMINGS,
}
EVERY = [CHAT, RANKING, VECTORS, RESPONSES, ANTHROPIC, NATIVE, OTHER]


def of_events(form: AnswerFormat, *events: object) -> EngineReport:
    return form.of_events([as_bytes(event) for event in events])


def as_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


def with_reason(report: EngineReport, reason: str | None) -> EngineReport:
    return EngineReport(**{**{name: getattr(report, name) for name in report.__slots__}, "finish_reason": reason})


# Responses.


def test_a_response_in_one_piece_reports_tokens_and_no_times() -> None:
    body = as_bytes({"id": "resp_x", "output": [], "status": "completed", "usage": USAGE})
    assert RESPONSES.of_answer(body) == EngineReport(59, 58, 6, finish_reason="completed")


def test_a_response_that_is_incomplete_says_why() -> None:
    body = as_bytes({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": USAGE})
    assert RESPONSES.of_answer(body).finish_reason == "max_output_tokens"


def test_a_response_stream_has_its_timings_beside_the_response() -> None:
    created = {"type": "response.created", "response": {"status": "in_progress"}}
    completed = {
        "type": "response.completed",
        "response": {"status": "completed", "usage": USAGE},
        "timings": TIMINGS,
    }
    assert of_events(RESPONSES, created, completed) == with_reason(TIMED, "completed")
    assert of_events(RESPONSES, created) == EngineReport()
    assert [RESPONSES.is_end(as_bytes(event)) for event in (created, completed)] == [False, True]


def test_an_error_within_a_response_stream_is_told() -> None:
    error = {"error": {"code": 500, "message": "SECRET", "type": "server_error"}}
    assert of_events(RESPONSES, error) == EngineReport(error="server_error (500)")


# Anthropic.


def test_a_message_in_one_piece_counts_cached_tokens_in() -> None:
    usage = {"cache_read_input_tokens": 58, "input_tokens": 1, "output_tokens": 6}
    body = as_bytes({"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage})
    assert ANTHROPIC.of_answer(body) == EngineReport(59, 58, 6, finish_reason="end_turn")


def test_a_message_stream_tells_the_prompt_first_and_the_rest_last() -> None:
    assert of_events(ANTHROPIC, START, BLOCK, DELTA, STOP) == EngineReport(59, 58, 6, finish_reason="max_tokens")
    assert [ANTHROPIC.is_end(as_bytes(event)) for event in (START, BLOCK, DELTA, STOP)] == [False, False, False, True]


def test_of_a_message_stream_that_was_cut_nothing_is_invented() -> None:
    """The first event says `output_tokens: 0`, which is how many there were by then."""
    assert of_events(ANTHROPIC, START, BLOCK) == EngineReport(59, 58)


@pytest.mark.parametrize(
    "error",
    [
        {"code": 500, "message": "SECRET", "type": "server_error"},
        {"error": {"code": 500, "message": "SECRET", "type": "server_error"}},
    ],
)
def test_an_error_within_a_message_stream_is_told(error: object) -> None:
    assert of_events(ANTHROPIC, START, error) == EngineReport(59, 58, error="server_error (500)")


# Native.


def test_a_native_completion_reports_its_timings() -> None:
    assert NATIVE.of_answer(as_bytes(LAST)) == with_reason(TIMED, "limit")
    assert of_events(NATIVE, PARTIAL, LAST) == with_reason(TIMED, "limit")
    assert [NATIVE.is_end(as_bytes(event)) for event in (None, PARTIAL, LAST)] == [False, False, True]


def test_without_timings_a_native_completion_reports_its_counts() -> None:
    bare = {name: value for name, value in LAST.items() if name != "timings"}
    assert of_events(NATIVE, PARTIAL, bare) == EngineReport(59, None, 6, finish_reason="limit")


def test_response_fields_may_leave_the_end_without_its_mark() -> None:
    assert NATIVE.is_end(b'{"content":""}')
    assert not NATIVE.is_end(b'{"error":{"code":500}}')


def test_several_prompts_in_one_piece_are_added_up() -> None:
    other = LAST | {"index": 1, "timings": TIMINGS | {"cache_n": 0, "prompt_n": 2, "predicted_n": 3}}
    report = NATIVE.of_answer(as_bytes([LAST, other]))
    assert report == EngineReport(61, 58, 9, finish_reason="limit"), "they ran together, so their times say nothing"


def test_what_one_of_several_did_not_report_is_not_known_of_all() -> None:
    assert NATIVE.of_answer(as_bytes([LAST, {"content": "x"}])) == EngineReport()


def test_of_several_prompts_in_a_stream_nothing_is_counted() -> None:
    assert of_events(NATIVE, PARTIAL | {"index": 1}, LAST) == EngineReport(finish_reason="limit")


# Embeddings and rankings.


def test_embeddings_report_their_prompt_without_a_look_at_the_vectors() -> None:
    whole = b'{"model":"m","usage":{"prompt_tokens":5,"total_tokens":5},"data":[{"embedding":[0.1,-2e-3]}]}'
    assert VECTORS.of_answer(whole) == EngineReport(prompt_tokens=5)
    assert VECTORS.of_answer(whole[:80]) == EngineReport(prompt_tokens=5)
    assert VECTORS.of_answer(b'{"data":[],"usage":{"prompt_tokens":5}}') == EngineReport(prompt_tokens=5)
    assert VECTORS.of_answer(b'[{"index":0,"embedding":[[0.1]]}]') == EngineReport()


def test_a_ranking_reports_its_prompt() -> None:
    body = b'{"model":"m","usage":{"prompt_tokens":6,"total_tokens":6},"results":[{"index":0,"relevance_score":0.08}]}'
    assert RANKING.of_answer(body) == EngineReport(prompt_tokens=6)


# All.


@pytest.mark.parametrize("form", EVERY)
def test_an_error_in_place_of_an_answer_is_told(form: AnswerFormat) -> None:
    body = as_bytes({"error": {"code": 501, "message": "SECRET", "type": "not_supported_error"}})
    assert form.of_answer(body) == EngineReport(error="not_supported_error (501)")


@pytest.mark.parametrize("form", EVERY)
@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"{", b"null", b'"x"', b"[]", b"[" * 100_000, b'{"usage":3}', b'{"type":[]}', b'{"timings":"fast"}'],
)
def test_what_cannot_be_read_reports_nothing(form: AnswerFormat, body: bytes) -> None:
    assert form.of_answer(body) == EngineReport()
    assert form.of_events([body, body]) == EngineReport()
    # A native end may lack all that would tell it as one.
    assert form is NATIVE or not form.is_end(body)
