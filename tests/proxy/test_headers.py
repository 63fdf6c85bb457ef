import pytest

from app.proxy.headers import (
    client_request_id,
    declared_bytes,
    is_event_stream,
    request_head,
    response_headers,
)


def test_a_request_goes_on_with_the_key_of_the_launch_and_without_the_clients_secrets() -> None:
    headers = [
        (b"host", b"public.example"),
        (b"authorization", b"Bearer client"),
        (b"x-api-key", b"client"),
        (b"cookie", b"session=1"),
        (b"content-type", b"application/json"),
        (b"content-length", b"999"),
        (b"transfer-encoding", b"chunked"),
        (b"accept", b"text/event-stream"),
        (b"accept-encoding", b"gzip"),
        (b"x-conversation-id", b"7"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"1"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
    ]
    head = request_head("POST", b"/v1/completions?model=a", headers, "launch-key", 12)
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/completions?model=a HTTP/1.1"
    assert sorted(lines[1:-2]) == sorted(
        [
            b"host: engine",
            b"authorization: Bearer launch-key",
            b"content-length: 12",
            b"content-type: application/json",
            b"accept: text/event-stream",
            b"x-twice: 1",
            b"x-twice: 2",
        ]
    )
    assert head.endswith(b"\r\n\r\n")


ENGINE = [
    (b"server", b"llama.cpp"),
    (b"date", b"today"),
    (b"keep-alive", b"timeout=5, max=100"),
    (b"transfer-encoding", b"chunked"),
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
    (b"cache-control", b"max-age=1"),
    (b"access-control-allow-origin", b"*"),
    (b"x-request-id", b"engine"),
    (b"process-start-time-unix", b"1"),
]


def test_an_answer_comes_back_without_what_concerns_one_hop() -> None:
    added = [(b"x-request-id", b"ours")]
    assert response_headers(ENGINE, added, is_stream=False) == [
        (b"content-type", b"text/event-stream"),
        (b"x-accel-buffering", b"no"),
        (b"cache-control", b"max-age=1"),
        (b"process-start-time-unix", b"1"),
        (b"x-request-id", b"ours"),
    ]


def test_a_stream_says_once_that_it_must_not_be_held_back() -> None:
    names = dict(response_headers(ENGINE, [], is_stream=True))
    assert names[b"x-accel-buffering"] == b"no"
    assert names[b"cache-control"] == b"no-cache"
    assert len(response_headers(ENGINE, [], is_stream=True)) == len(names)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"abc-1", "abc-1"),
        (b"x" * 128, "x" * 128),
        (b"x" * 129, None),
        (b"", None),
        (b"a\tb", None),
        ("ä".encode(), None),
    ],
)
def test_a_clients_request_id_is_taken_where_it_is_harmless(value: bytes, expected: str | None) -> None:
    assert client_request_id([(b"x-request-id", value)]) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(b"12", 12), (b"0", 0), (b"-1", None), (b"1.5", None), (b"9" * 5000, None)]
)
def test_a_declared_length(value: bytes, expected: int | None) -> None:
    assert declared_bytes([(b"content-length", value)]) == expected
    assert declared_bytes([]) is None


def test_an_event_stream_is_known_by_its_type() -> None:
    assert is_event_stream([(b"content-type", b"Text/Event-Stream; charset=utf-8")])
    assert not is_event_stream([(b"content-type", b"application/json")])
    assert not is_event_stream([])
