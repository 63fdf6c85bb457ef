"""Requests put together from right and wrong parts: whatever they are, the relay answers, records, and goes on.

Slow, since it sends some hundred of them and looks each up. It earns that no combination of request line, headers,
framing and body that Hypothesis comes upon is answered with an error of ours, keeps a connection waiting, or loses a
row.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures.raw_http import HOST, Edge, running_edge
from fixtures.tiny_models import TinyModels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def edge(tiny: TinyModels) -> Iterator[Edge]:
    with running_edge(tiny) as running:
        yield running


LINES = st.tuples(
    st.sampled_from([b"POST"] * 6 + [b"GET", b"PUT", b"HEAD", b"OPTIONS"]),
    st.sampled_from(
        [b"/v1/completions"] * 4
        + [b"/v1/chat/completions", b"/v1/messages", b"/tokenize", b"/upstream/known/tokenize", b"/upstream/%ff/"]
    ),
    st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/1.2", b"HTTP"]),
)
HEADERS = st.lists(
    st.one_of(
        st.sampled_from(
            [b"X-Request-Id: a", b"Connection: close", b"Connection: x-a", b"Expect: 100-continue", b"Accept: \xff"]
        ),
        st.builds(
            lambda name, value: name + b": " + value,
            st.sampled_from([b"X-A", b"X-Request-Id", b"X-Paceline-Category", b"Accept", b"Content-Encoding"]),
            st.binary(max_size=30),
        ),
    ),
    max_size=4,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["known", "auto", "", "\x00", "é"])
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "role", "content"]), inner),
    max_leaves=6,
)
DOCUMENTS = st.one_of(
    st.fixed_dictionaries(
        {"model": st.sampled_from(["known"] * 4 + ["auto", "unknown"]), "prompt": VALUES, "max_tokens": st.just(1)},
        optional={
            "stream": VALUES,
            "messages": VALUES,
            "n": VALUES,
            "logprobs": VALUES,
            "stop": VALUES,
            "content": VALUES,
        },
    ),
    VALUES,
)
BODIES = st.one_of(
    DOCUMENTS.map(lambda document: json.dumps(document).encode()),
    DOCUMENTS.map(lambda document: json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=40),
)


@st.composite
def requests(draw: Any) -> tuple[bytes, bool]:
    """A request, and whether all of it is there."""
    line = b" ".join(draw(LINES))
    body: bytes = draw(BODIES)
    headers = [line, HOST, b"Content-Type: application/json", *draw(HEADERS)]
    framing = draw(st.sampled_from(["length", "length", "length", "chunks", "both", "none", "short"]))
    if framing in ("length", "both", "short"):
        headers.append(b"Content-Length: %d" % (len(body) + (framing == "short")))
    if framing in ("chunks", "both"):
        headers.append(b"Transfer-Encoding: chunked")
        cut = draw(st.integers(0, len(body)))
        pieces = [piece for piece in (body[:cut], body[cut:]) if piece]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        body += draw(st.sampled_from([b"0\r\n\r\n"] * 3 + [b"0\r\nX-A: a\r\n\r\n", b"-1\r\n\r\n", b"zz\r\n"]))
    return b"\r\n".join([*headers, b"", b""]) + body, framing != "short"


@pytest.mark.slow
@given(sent=st.lists(requests(), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_is_answered_and_recorded(edge: Edge, sent: list[tuple[bytes, bool]]) -> None:
    answered: Counter[int] = Counter()
    n_refused = 0
    for raw, is_whole in sent:
        if not is_whole:
            edge.send_and_leave(raw)
            n_refused += 1
            continue
        answer = edge.send(raw)
        if answer is None or (answer.status == 400 and "x-request-id" not in answer.headers):
            # Its parser has refused it, perhaps when the relay had it already.
            n_refused += 1
            continue
        assert answer.status != 500 or answer.is_of_engine, (raw, answer)
        if "x-request-id" in answer.headers:
            answered[answer.status] += 1
    recorded = Counter(row["status_code"] for row in edge.rows(answered.total()))
    assert answered <= recorded, (answered, recorded)
    assert (recorded - answered).total() <= n_refused
    assert not edge.complaints(), "".join(edge.log)
