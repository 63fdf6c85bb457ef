"""What profiles take out of bodies, or put in; and who asks for log probabilities."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.proxy.body_filters import asks_logprobs, filtered
from app.proxy.request_body import RequestBody

BODY = RequestBody(
    b'{ "model":"p", "temperature" : 0.70, "seed":12345678901234567890123, "stop":["\\u00e9"],"x":1e400 }'
)


def test_without_filters_the_bytes_are_the_same() -> None:
    assert filtered(BODY, (), {}) is BODY
    assert filtered(BODY, ("absent",), {}) is BODY


def test_members_are_taken_out_and_put_in_and_the_rest_stays_as_it_was_written() -> None:
    changed = filtered(BODY, ("temperature",), {"top_k": 1, "stop": None})
    assert changed.data == b'{"model":"p","seed":12345678901234567890123,"stop":null,"x":1e400,"top_k":1}'


def test_what_the_relay_goes_by_is_not_filtered() -> None:
    assert filtered(BODY, ("model", "stream"), {"model": "q", "stream": True}) is BODY


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.text(), JSON), st.lists(st.text(), max_size=4), st.dictionaries(st.text(), JSON, max_size=3))
def test_any_object(members: dict[str, object], strip: list[str], put: dict[str, object]) -> None:
    changed = json.loads(filtered(RequestBody(json.dumps(members).encode()), strip, put).data)
    kept = {name: value for name, value in members.items() if name not in strip or name in ("model", "stream")}
    assert changed == kept | {name: value for name, value in put.items() if name not in ("model", "stream")}


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        (b'{"logprobs":true}', True),
        (b'{"logprobs":5}', True),
        (b'{"top_logprobs":2}', True),
        (b'{"n_probs":1}', True),
        (b'{"logprobs":false,"n_probs":0,"top_logprobs":null}', False),
        (b'{"prompt":"logprobs"}', False),
        (b"not json", False),
    ],
)
def test_log_probabilities(body: bytes, asks: bool) -> None:
    assert asks_logprobs(RequestBody(body)) is asks
