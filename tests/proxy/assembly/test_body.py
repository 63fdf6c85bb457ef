"""Which bodies are taken, and what is made of them. That those taken give equal answers is `contract/`'s to prove."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.proxy.assembly.body import can_assemble, streaming_body
from app.proxy.endpoints import Endpoint
from app.proxy.request_body import RequestBody

CHAT, TEXT = Endpoint.CHAT_COMPLETIONS, Endpoint.COMPLETIONS
MESSAGES: Any = [{"role": "user", "content": "hello"}]
ASKED = {"stream": True, "stream_options": {"include_usage": True}, "timings_per_token": True}


def is_taken(endpoint: Endpoint, **more: Any) -> bool:
    body = {"messages": MESSAGES} if endpoint is CHAT else {"prompt": "x"}
    return can_assemble(endpoint, RequestBody(json.dumps(body | more).encode()))


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize(
    "more",
    [
        {}, {"stream": False}, {"stream": None}, {"n": 1}, {"n": None}, {"stop": "x"}, {"max_tokens": 5},
        {"temperature": 0.5, "seed": 3, "top_k": 1}, {"logprobs": False}, {"logprobs": None, "top_logprobs": None},
        {"echo": False}, {"stream_options": None}, {"anything": None},
    ],
    ids=str,
)  # fmt: skip
def test_taken(endpoint: Endpoint, more: dict[str, Any]) -> None:
    assert is_taken(endpoint, **more)


@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
@pytest.mark.parametrize(
    "more",
    [
        {"stream": True}, {"n": 2}, {"logprobs": True}, {"logprobs": 3}, {"n_probs": 2}, {"top_logprobs": 2},
        {"echo": True}, {"stream_options": {}}, {"timings_per_token": True}, {"timings_per_token": False},
        {"return_progress": True}, {"verbose": True}, {"response_fields": []}, {"return_tokens": True},
        {"t_max_predict_ms": 5}, {"n_indent": 2}, {"lora": []}, {"continue_final_message": True},
        {"add_generation_prompt": False}, {"sse_ping_interval": 1}, {"best_of": 1}, {"suffix": "x"}, {"unknown": 1},
    ],
    ids=str,
)  # fmt: skip
def test_refused(endpoint: Endpoint, more: dict[str, Any]) -> None:
    assert not is_taken(endpoint, **more)


@pytest.mark.parametrize("endpoint", sorted(set(Endpoint) - {CHAT, TEXT}))
def test_other_endpoints_are_refused(endpoint: Endpoint) -> None:
    assert not can_assemble(endpoint, RequestBody(b'{"messages":[]}'))


@pytest.mark.parametrize("prompt", [["x"], [1, 2], [], {"prompt_string": "x"}, 7], ids=str)
def test_prompts_that_are_no_text_are_refused(prompt: Any) -> None:
    assert not is_taken(TEXT, prompt=prompt)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("x", True),
        (None, True),
        ([], True),
        ([{"type": "text", "text": "x"}], True),
        ([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}], False),
        ([{"type": "input_audio"}], False),
        ([{"text": "x"}], False),
        ([7], False),
        (7, False),
    ],
    ids=str,
)
def test_messages(content: Any, expected: bool) -> None:
    messages = [{"role": "system", "content": "y"}, {"role": "user", "content": content}]
    assert is_taken(CHAT, messages=messages) == expected


def test_a_last_message_of_the_assistant_is_refused() -> None:
    begun = {"role": "assistant", "content": "x"}
    assert not is_taken(CHAT, messages=[*MESSAGES, begun])
    assert is_taken(CHAT, messages=[*MESSAGES, begun, *MESSAGES])


@pytest.mark.parametrize("kind", ["text", "json_object", "json_schema", "grammar", None])
def test_response_formats(kind: str | None) -> None:
    assert is_taken(CHAT, response_format={"type": kind}) == (kind in ("text", "json_object", "json_schema"))
    assert not is_taken(TEXT, response_format={"type": kind})


@pytest.mark.parametrize("kind", ["none", "auto", "deepseek", "deepseek-legacy", 7, ["none"]], ids=str)
def test_reasoning_formats(kind: Any) -> None:
    assert is_taken(CHAT, reasoning_format=kind) == (kind in ("none", "auto", "deepseek"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"prompt":"x",}', b'{"prompt":"\xff"}', b"[" * 9000, b'{"a":1} x']
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    assert not can_assemble(TEXT, RequestBody(body))


def test_values_keep_their_bytes() -> None:
    body = b'{ "prompt" : "a\\u00e9\\/", "stream":false, "seed": 18446744073709551617, "temperature":1.50E+00 }'
    assert streaming_body(RequestBody(body)) == (
        b'{"prompt":"a\\u00e9\\/","stream":true,"seed":18446744073709551617,"temperature":1.50E+00,'
        b'"stream_options":{"include_usage":true},"timings_per_token":true}'
    )


def test_of_a_member_that_comes_twice_the_last_counts_as_for_the_engine() -> None:
    assert not can_assemble(TEXT, RequestBody(b'{"prompt":"x","n":1,"n":2}'))
    assert json.loads(streaming_body(RequestBody(b'{"prompt":"x","seed":1,"seed":2}'))) == {
        "prompt": "x",
        "seed": 2,
        **ASKED,
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=6))
def test_all_that_was_asked_is_asked(members: dict[str, Any]) -> None:
    assert json.loads(streaming_body(RequestBody(json.dumps(members).encode()))) == members | ASKED
