import json

import pytest

from app.llama_server.timings import EngineReport, report_of_answer, report_of_events

TIMINGS = {
    "cache_n": 5,
    "prompt_n": 28,
    "prompt_ms": 131.823,
    "prompt_per_second": 212.4,
    "predicted_n": 64,
    "predicted_ms": 1321.9074,
    "predicted_per_second": 47.6,
}
DRAFTS = {"draft_n": 47, "draft_n_accepted": 40}


def as_json(**members: object) -> bytes:
    return json.dumps(members).encode()


def choice(finish_reason: str | None) -> list[object]:
    return [{"index": 0, "finish_reason": finish_reason, "delta": {"content": "x"}}]


def test_an_answer_reports_counts_and_times() -> None:
    body = as_json(
        choices=[{"finish_reason": "stop", "message": {"content": "hello"}}],
        usage={"prompt_tokens": 33, "completion_tokens": 64, "total_tokens": 97},
        timings=TIMINGS | DRAFTS,
    )
    assert report_of_answer(body) == EngineReport(
        prompt_tokens=33,
        cached_tokens=5,
        generated_tokens=64,
        prompt_us=131823,
        generation_us=1321907,
        draft_tokens=47,
        accepted_tokens=40,
        finish_reason="stop",
    )


def test_what_was_not_drafted_is_unknown_and_not_zero() -> None:
    report = report_of_answer(as_json(timings=TIMINGS))
    assert report.draft_tokens is None
    assert report.accepted_tokens is None


def test_usage_speaks_where_timings_are_missing() -> None:
    usage = {"prompt_tokens": 33, "completion_tokens": 64, "prompt_tokens_details": {"cached_tokens": 5}}
    assert report_of_answer(as_json(usage=usage)) == EngineReport(
        prompt_tokens=33, cached_tokens=5, generated_tokens=64
    )


def test_a_zero_that_was_reported_stays_zero() -> None:
    report = report_of_answer(as_json(timings=TIMINGS | {"cache_n": 0, "prompt_n": 1, "draft_n_accepted": 0}))
    assert (report.cached_tokens, report.prompt_tokens, report.accepted_tokens) == (0, 1, 0)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"code": 400, "message": "SECRET", "type": "exceed_context_size_error"}, "exceed_context_size_error (400)"),
        ({"code": "x", "message": "SECRET", "type": "server_error"}, "server_error"),
        ({"code": 400, "message": "SECRET", "type": "SECRET words of a prompt"}, "error"),
        ({"message": "SECRET"}, "error"),
        ("SECRET", "error"),
    ],
)
def test_of_an_error_only_its_kind_is_told(error: object, told: str) -> None:
    """The engine's message may quote the prompt, and no prompt is stored."""
    assert report_of_answer(as_json(error=error)) == EngineReport(error=told)


def test_the_finish_reason_may_stand_before_the_usage() -> None:
    events = [
        as_json(choices=choice(None)),
        as_json(choices=choice("length")),
        as_json(choices=[], usage={"prompt_tokens": 33, "completion_tokens": 64}, timings=TIMINGS),
    ]
    report = report_of_events(events)
    assert (report.finish_reason, report.prompt_tokens, report.generated_tokens) == ("length", 33, 64)


def test_of_timings_per_token_the_newest_count() -> None:
    events = [as_json(choices=choice(None), timings=TIMINGS | {"predicted_n": n}) for n in (1, 2, 3)]
    assert report_of_events(events).generated_tokens == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"timings":"fast"}',
        b'{"timings":{"prompt_n":"many"}}',
        b'{"timings":{"prompt_ms":1e400}}',
        b"[" * 100_000,
        b'{"choices":[{"finish_reason":' + b"[" * 100_000,
        b'{"error":"\xff"}',
    ],
)
def test_what_cannot_be_read_reports_nothing(body: bytes) -> None:
    assert report_of_answer(body) == EngineReport()
    assert report_of_events([body, body]) == EngineReport()


def test_impossible_numbers_are_left_out() -> None:
    report = report_of_answer(as_json(timings=TIMINGS | {"predicted_n": -1, "predicted_ms": 1e300, "prompt_n": 2**70}))
    assert report.generated_tokens is None
    assert report.generation_us is None
    assert report.prompt_tokens is None
    assert report.prompt_us == 131823
