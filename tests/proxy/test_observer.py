import pytest
from msgspec import structs
from proxy.scripted_engine import DONE_EVENT, LAST_EVENT, event

from app.llama_server.answer_formats import ANTHROPIC, CHAT, NATIVE
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Observation, Outcome


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def observation() -> tuple[Observation, Clock]:
    clock = Clock()
    return Observation(5, Endpoint.CHAT_COMPLETIONS, CHAT, clock=clock), clock


def test_times_count_from_the_arrival() -> None:
    seen, clock = observation()
    clock.now += 0.25
    seen.sent()
    seen.answered(is_events=True)
    for seconds, chunk in ((1, b": ping\n\n"), (2, event("a")), (3, event("b")), (4, LAST_EVENT + DONE_EVENT)):
        clock.now = 100.0 + seconds
        seen.chunk(chunk)
    clock.now = 105.0
    told = seen.finish(Outcome.COMPLETED, None, None)
    assert (told.queue_us, told.time_to_first_token_us, told.duration_us) == (250_000, 2_000_000, 5_000_000)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_stream_is_read_whatever_the_chunks(size: int) -> None:
    seen, _ = observation()
    seen.answered(is_events=True)
    stream = event("a") + event("b") + LAST_EVENT + DONE_EVENT
    for start in range(0, len(stream), size):
        seen.chunk(stream[start : start + size])
    conclusion = seen.conclude()
    assert conclusion.has_end_mark
    assert conclusion.report == EngineReport(10, 1, 4, 1500, 20250, 6, 5, "stop")
    assert seen.time_to_first_token_us is not None


def test_a_stream_that_was_cut_has_no_end_mark() -> None:
    seen, _ = observation()
    seen.answered(is_events=True)
    seen.chunk(event("a") + b"data: [DO")
    conclusion = seen.conclude()
    assert not conclusion.has_end_mark


def test_an_end_of_any_length_is_read() -> None:
    seen, _ = observation()
    seen.answered(is_events=True)
    seen.chunk(event("first"))
    seen.chunk(event("x" * 600_000) + LAST_EVENT + DONE_EVENT)
    assert seen.conclude().has_end_mark
    assert seen.conclude().report.generated_tokens == 4


def test_an_answer_too_long_to_be_kept_reports_nothing() -> None:
    seen, _ = observation()
    seen.answered(is_events=False)
    seen.chunk(b'{"usage":{"prompt_tokens":1},"choices":[],"x":"')
    for _n in range(17):
        seen.chunk(b"y" * 1024 * 1024)
    seen.chunk(b'"}')
    assert seen.conclude().report == EngineReport()


def test_the_first_event_counts_however_long_the_stream() -> None:
    seen = Observation(5, Endpoint.MESSAGES, ANTHROPIC)
    seen.answered(is_events=True)
    seen.chunk(b': waiting\n\nevent: message_start\ndata: {"type":"message_start","message":{"usa')
    seen.chunk(b'ge":{"input_tokens":3}}}\n\n')
    for _n in range(100):
        seen.chunk(event("x" * 10_000))
    seen.chunk(b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":9}}\n\n')
    assert seen.conclude().report == EngineReport(prompt_tokens=3, generated_tokens=9)
    assert not seen.conclude().is_complete


def test_an_end_too_long_to_be_kept_is_not_taken_for_a_cut() -> None:
    seen = Observation(5, Endpoint.COMPLETION, NATIVE)
    seen.answered(is_events=True)
    seen.chunk(b'data: {"index":0,"stop":false}\n\n')
    for _n in range(200):
        seen.chunk(b"x" * 100_000)
    assert not seen.conclude().is_complete
    seen.chunk(b"}\n\n")
    conclusion = seen.conclude()
    assert (conclusion.is_complete, conclusion.report) == (True, EngineReport())


def test_nothing_learnt_is_told_as_unknown() -> None:
    seen, _ = observation()
    told = seen.finish(Outcome.CLIENT_GONE, None, None)
    unknown = {name for name, value in structs.asdict(told).items() if value is None}
    assert unknown == {
        "category",
        "client",
        "client_request_id",
        "instance_id",
        "context",
        "profile_id",
        "requested_model",
        "route_reason",
        "status_code",
        "error",
        "time_to_first_token_us",
    }
    assert told.report == EngineReport()
