"""What the benchmarks say of themselves: what is streamed, and what counts as within the budget."""

from dataclasses import replace

import msgspec
import pytest

from app.proxy.assembly.assembly import Assembly
from app.proxy.assembly.outcome import Assembled
from app.proxy.assembly.split import EventSplitter
from app.proxy.endpoints import Endpoint
from bench.answers import FIRST, WORDS, event, last_events, streamed
from bench.stream_order import StreamOrder, order_of
from bench.table import NGINX, PACELINE, Line, Table
from bench.wire import chat

ORDER = StreamOrder(64, 20, is_stamped=True)


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


def test_the_engine_streams_what_is_ordered_and_only_where_a_stream_is_asked_for() -> None:
    assert order_of(body_of(chat(ORDER))) is None
    assert order_of(body_of(chat(ORDER, stream=True))) == ORDER
    more = {"stream_options": {"include_usage": True}, "timings_per_token": True}
    assert order_of(body_of(chat(ORDER, stream=True, **more))) == replace(ORDER, with_timings=True, with_usage=True)


def test_the_engines_stream_gives_one_answer() -> None:
    events = [event(WORDS[number % len(WORDS)], with_timings=True) for number in range(64)]
    assembly = Assembly(Endpoint.CHAT_COMPLETIONS)
    for payload in EventSplitter().feed(b"".join((FIRST, *events, last_events(with_usage=True)))):
        assembly.feed(payload)
    outcome = assembly.result()
    assert isinstance(outcome, Assembled)
    answer = msgspec.json.decode(outcome.body)
    assert answer["choices"][0]["message"]["content"].encode() == streamed(64)
    assert answer["usage"]["completion_tokens"] == 64


@pytest.mark.parametrize(
    ("figure", "most", "verdict"),
    [(5.9, 6.0, "ok"), (6.1, 6.0, "OVER"), (None, 6.0, "?"), (6.1, None, "")],
)
def test_a_budget_is_kept_only_where_that_is_known(
    figure: float | None, most: float | None, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table((NGINX, PACELINE))
    table.add(Line("a figure", "us", {PACELINE: 100.0}, figure, "x nginx", most))
    assert table.is_within is (verdict in ("ok", ""))
    assert capsys.readouterr().out.rstrip().endswith(verdict)
