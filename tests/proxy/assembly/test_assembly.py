"""The answer out of recorded and generated events."""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.proxy.assembly.assembly import Assembly
from app.proxy.assembly.outcome import Assembled, CutShort, EngineRefused, NotUnderstood, Outcome
from app.proxy.assembly.split import EventSplitter
from app.proxy.endpoints import Endpoint

CHAT, TEXT = Endpoint.CHAT_COMPLETIONS, Endpoint.COMPLETIONS
DONE = b"[DONE]"
ERROR = b'{"error":{"code":503,"message":"no more","type":"unavailable_error","n_ctx":64}}'


def timings(tokens: int) -> dict[str, Any]:
    return {"cache_n": 2, "prompt_n": 1, "prompt_ms": 0.25, "predicted_n": tokens, "predicted_ms": 1.5}


def usage(tokens: int) -> dict[str, Any]:
    return {
        "completion_tokens": tokens,
        "prompt_tokens": 3,
        "total_tokens": 3 + tokens,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def event(kind: str, choices: list[Any], **more: Any) -> bytes:
    head = {"choices": choices, "created": 17, "id": "x-1", "model": "m", "system_fingerprint": "b1", "object": kind}
    return json.dumps(head | more, ensure_ascii=False).encode()


def delta(piece: dict[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
    choice = {"finish_reason": finish_reason, "index": 0, "delta": piece}
    return event("chat.completion.chunk", [choice], **more)


def chat_events(pieces: Iterable[dict[str, Any]], finish_reason: str = "stop", silent: int = 1) -> Iterator[bytes]:
    """One token for each piece, and `silent` more at the end."""
    yield delta({"role": "assistant", "content": None})
    tokens = 0
    for tokens, piece in enumerate(pieces, 1):
        yield delta(piece, timings=timings(tokens))
    tokens += silent
    yield delta({}, finish_reason)
    yield event("chat.completion.chunk", [], usage=usage(tokens), timings=timings(tokens))


def text_events(pieces: Iterable[str], finish_reason: str = "length") -> Iterator[bytes]:
    tokens = 0
    for tokens, piece in enumerate(pieces, 1):
        choice = {"text": piece, "index": 0, "logprobs": None, "finish_reason": None}
        yield event("text_completion", [choice], timings=timings(tokens))
    last = {"text": "", "index": 0, "logprobs": None, "finish_reason": finish_reason}
    yield event("text_completion", [last], usage=usage(tokens), timings=timings(tokens))


def outcome(endpoint: Endpoint, events: Iterable[bytes]) -> Outcome:
    assembly = Assembly(endpoint)
    for payload in (*events, DONE):
        assembly.feed(payload)
    return assembly.result()


def answer(endpoint: Endpoint, events: Iterable[bytes]) -> dict[str, Any]:
    found = outcome(endpoint, events)
    assert isinstance(found, Assembled), found
    parsed: dict[str, Any] = json.loads(found.body)
    return parsed


CALLS = [
    {"reasoning_content": "so "},
    {"reasoning_content": "it is"},
    {"content": "well"},
    {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "wea"}}]},
    {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": "{"}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"town":"é"}'}}]},
    {"tool_calls": [{"index": 1, "function": {"name": "nothing"}}]},
]


def test_every_member_of_a_chat_in_the_order_of_the_engine() -> None:
    found = outcome(CHAT, chat_events(CALLS, "tool_calls"))
    assert found == Assembled(
        '{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":"well",'
        '"reasoning_content":"so it is","tool_calls":[{"type":"function","function":{"name":"weather",'
        '"arguments":"{\\"town\\":\\"é\\"}"},"id":"a"},{"type":"function","function":{"name":"nothing",'
        '"arguments":""}}]}}],"created":17,"model":"m","system_fingerprint":"b1","object":"chat.completion",'
        '"usage":{"completion_tokens": 8, "prompt_tokens": 3, "total_tokens": 11, "prompt_tokens_details": '
        '{"cached_tokens": 2}},"id":"x-1","timings":{"cache_n": 2, "prompt_n": 1, "prompt_ms": 0.25, '
        '"predicted_n": 8, "predicted_ms": 1.5}}'.encode(),
        may_differ=False,
    )


def test_every_member_of_a_text_in_the_order_of_the_engine() -> None:
    assert outcome(TEXT, text_events(["a", "", "bé"])) == Assembled(
        '{"choices":[{"text":"abé","index":0,"logprobs":null,"finish_reason":"length"}],"created":17,"model":"m",'
        '"system_fingerprint":"b1","object":"text_completion","usage":{"completion_tokens": 3, "prompt_tokens": 3, '
        '"total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 2}},"id":"x-1","timings":{"cache_n": 2, '
        '"prompt_n": 1, "prompt_ms": 0.25, "predicted_n": 3, "predicted_ms": 1.5}}'.encode(),
        may_differ=False,
    )


@given(st.lists(st.tuples(st.sampled_from(["content", "reasoning_content"]), st.text(max_size=5)), max_size=9))
def test_a_message_is_its_pieces(pieces: list[tuple[str, str]]) -> None:
    message = answer(CHAT, chat_events({name: piece} for name, piece in pieces))["choices"][0]["message"]
    said = {name: "".join(piece for kind, piece in pieces if kind == name) for name in ("content", "reasoning_content")}
    assert message["content"] == said["content"]
    assert message.get("reasoning_content", "") == said["reasoning_content"]
    assert ("reasoning_content" in message) == bool(said["reasoning_content"])


@given(st.lists(st.text(max_size=5), min_size=1, max_size=9))
def test_a_text_is_its_pieces(pieces: list[str]) -> None:
    assert answer(TEXT, text_events(pieces))["choices"][0]["text"] == "".join(pieces)


@given(st.lists(st.integers(0, 2500), max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.sampled_from([b"", b":\n\n"]))
def test_any_chunks_give_the_same_answer(cuts: list[int], newline: bytes, ping: bytes) -> None:
    events = list(chat_events(CALLS, "tool_calls"))
    stream = b"".join(ping + b"data: " + payload + b"\n\n" for payload in (*events, DONE)).replace(b"\n", newline)
    bounds = [0, *sorted(cuts), len(stream)]
    splitter, assembly = EventSplitter(), Assembly(CHAT)
    for start, end in pairwise(bounds):
        for payload in splitter.feed(stream[start:end]):
            assembly.feed(payload)
    assert assembly.result() == outcome(CHAT, events)


@pytest.mark.parametrize(("endpoint", "events"), [(CHAT, [*chat_events(CALLS)]), (TEXT, [*text_events(["a", "b"])])])
def test_a_stream_cut_anywhere_is_no_answer(endpoint: Endpoint, events: list[bytes]) -> None:
    cut = [outcome(endpoint, events[:length]) for length in range(len(events))]
    first_output = 2 if endpoint is CHAT else 1
    assert cut == [CutShort(had_output=length >= first_output) for length in range(len(events))]


@pytest.mark.parametrize("after", [0, 3])
def test_an_error_is_the_answer_with_its_status(after: int) -> None:
    events = [*chat_events(CALLS)][:after]
    assert outcome(CHAT, [*events, ERROR, *chat_events(CALLS)]) == EngineRefused(503, ERROR)


def test_an_error_without_a_status_of_an_error_is_one_of_the_server() -> None:
    for error in (b'{"error":{"message":"x"}}', b'{"error":{"code":7}}'):
        assert outcome(CHAT, [error]) == EngineRefused(500, error)


@pytest.mark.parametrize(
    "strange",
    [
        b"[]",
        b"{",
        b'"\xff"',
        b'{"error":7}',
        delta({"content": "x", "refusal": "no"}),
        delta({"role": "user"}),
        delta({"tool_calls": [{"index": 2}]}),
        delta({"tool_calls": [{"index": -1}]}),
        delta({"tool_calls": [{"index": 0, "type": "custom"}]}),
        event("chat.completion.chunk", [{"index": 1, "delta": {}}]),
        event("chat.completion.chunk", [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}]),
        event("chat.completion.chunk", [{"index": 0, "text": "x"}]),
        event("chat.completion.chunk", [{"index": 0, "delta": {}, "logprobs": {"content": []}}]),
        event("chat.completion.chunk", [], usage={"prompt_tokens": 1}),
    ],
    ids=repr,
)
def test_what_is_not_known_makes_no_answer(strange: bytes) -> None:
    assert isinstance(outcome(CHAT, [strange, *chat_events(CALLS)]), NotUnderstood)


def test_more_after_the_end_makes_no_answer() -> None:
    whole = [*chat_events([{"content": "x"}])]
    for events in ([*whole, whole[1]], [*whole[:-1], whole[1], whole[-1]], [*whole, *whole]):
        assert isinstance(outcome(CHAT, events), NotUnderstood)
    choice = {"text": "x", "index": 0, "logprobs": None, "finish_reason": "stop"}
    assert isinstance(outcome(TEXT, [event("text_completion", [choice], usage=usage(1))]), NotUnderstood)


def may_differ(endpoint: Endpoint, events: Iterable[bytes]) -> bool:
    found = outcome(endpoint, events)
    assert isinstance(found, Assembled)
    return found.may_differ


@pytest.mark.parametrize(
    ("finish_reason", "pieces", "silent", "expected"),
    [
        ("length", ["a", "b"], 0, False),
        ("length", ["a", "b"], 1, True),
        ("length", [], 1, True),
        ("stop", ["a"], 3, False),
        ("stop", [], 1, False),
        ("stop", [], 2, True),
        ("stop", ["\ufffd"], 1, False),
    ],
)
def test_when_a_message_may_differ(finish_reason: str, pieces: list[str], silent: int, expected: bool) -> None:
    events = chat_events(({"content": piece} for piece in pieces), finish_reason, silent)
    assert may_differ(CHAT, events) == expected


@pytest.mark.parametrize("piece", [CALLS[0], CALLS[3]], ids=["reasoning", "call"])
def test_a_message_with_marks_and_bytes_that_are_no_character_may_differ(piece: dict[str, Any]) -> None:
    assert not may_differ(CHAT, chat_events([piece, {"content": "x"}]))
    assert may_differ(CHAT, chat_events([piece, {"content": "x\ufffd"}]))


@pytest.mark.parametrize(
    ("finish_reason", "pieces", "lost", "expected"),
    [
        ("length", ["a", "b"], 0, False),
        ("length", ["a", ""], 0, True),
        ("length", ["a", "b"], 1, True),
        ("stop", ["a", ""], 0, False),
        ("stop", ["a", ""], 1, True),
        ("stop", [""], 0, False),
    ],
)
def test_when_a_text_may_differ(finish_reason: str, pieces: list[str], lost: int, expected: bool) -> None:
    *before, _ = text_events(pieces, finish_reason)
    last = [*text_events([*pieces, *["x"] * lost], finish_reason)][-1]
    assert may_differ(TEXT, [*before, last]) == expected
