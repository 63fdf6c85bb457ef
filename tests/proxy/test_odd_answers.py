"""What an engine may send instead of a plain HTTP answer: the odd is passed on, the broken is an honest error.

After each of them the relay goes on as before.
"""

import pytest
from proxy.relay_client import Client
from proxy.relay_stage import INSTANCE_ID, Stage, client_of, stage
from proxy.scripted_engine import (
    CHUNKED_HEAD,
    DONE_EVENT,
    LAST_EVENT,
    STREAM_HEAD,
    EngineConnection,
    EngineRequest,
    event,
    whole,
)

from app.proxy.observer import Outcome, RequestFinished

ASKED = b'{"model":"small","n":2}'
ASKED_AS_STREAM = b'{"model":"small","stream":true}'
BODY = b'{"choices":[]}'
EVENTS = event("a") + LAST_EVENT + DONE_EVENT
HELD = b"Content-Length: 14\r\n\r\n" + BODY


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


class OddOnce:
    """An engine whose first answer is odd, and all others plain."""

    def __init__(self, answer: bytes, *, closes: bool = False) -> None:
        self._answer: bytes | None = answer
        self._closes = closes

    async def __call__(self, _: EngineRequest, connection: EngineConnection) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            await connection.write(whole(BODY))
            return
        await connection.write(answer)
        if self._closes:
            connection.writer.close()


async def told_and_well(now: Stage) -> RequestFinished:
    """What was told of the odd answer, once another client had a plain one."""
    told = await now.next_told()
    async with client_of(now) as other:
        answered = await other.ask(ASKED)
        assert (answered.status, answered.body) == (200, BODY)
        assert (await now.next_told()).outcome is Outcome.COMPLETED
    assert now.released == ["small", "small"]
    return told


async def asked_of(client: Client, is_stream: bool) -> None:
    await client.post(ASKED_AS_STREAM if is_stream else ASKED)


OK = b"HTTP/1.1 200 OK\r\n"
ODD_HEADS = {
    "odd case": (OK + b"cOnTeNt-TyPe: application/json\r\nX-KEPT: Yes\r\nCONTENT-LENGTH: 14\r\n\r\n" + BODY),
    "odd spaces": (OK + b"Content-Type:\tapplication/json \t\r\nX-Kept:Yes\r\nContent-Length:   14  \r\n\r\n" + BODY),
    "no reason": (b"HTTP/1.1 200\r\nX-Kept: Yes\r\n" + HELD),
    "odd reason": (b"HTTP/1.1 200 \xe9\tIt is so, so fine: yes!\r\nX-Kept: Yes\r\n" + HELD),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nX-Kept: Yes\r\n" + HELD),
    "blank lines before": (b"\r\n\r\n" + OK + b"X-Kept: Yes\r\n" + HELD),
    "interim answers": (b"HTTP/1.1 102 Processing\r\nX-Kept: No\r\n\r\n" * 3 + OK + b"X-Kept: Yes\r\n" + HELD),
    "an interim length": (b"HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n" + OK + b"X-Kept: Yes\r\n" + HELD),
    "chunked in odd case": (OK + b"TRANSFER-ENCODING:  Chunked \r\nX-Kept: Yes\r\n\r\n" + chunk(BODY) + b"0\r\n\r\n"),
    "extensions": (
        OK + b"Transfer-Encoding: chunked\r\nX-Kept: Yes\r\n\r\n"
        + chunk(BODY[:4], b';a="x;\\"y";b') + chunk(BODY[4:], b";c=d;e") + b"0;z=1\r\n\r\n"
    ),
    "a long extension": (
        OK + b"Transfer-Encoding: chunked\r\nX-Kept: Yes\r\n\r\n" + chunk(BODY, b";a=" + b"x" * 10_000) + b"0\r\n\r\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_HEADS)
async def test_the_odd_is_passed_on(name: str) -> None:
    async with stage(OddOnce(ODD_HEADS[name])) as now, client_of(now) as client:
        answered = await client.ask(ASKED)
        assert (answered.status, answered.body, answered.is_whole) == (200, BODY, True)
        assert answered.head.headers["x-kept"] == ["Yes"]
        assert (await told_and_well(now)).outcome is Outcome.COMPLETED
        assert len(now.engine.connections) == 1, "its connection is used again"


async def test_a_stream_is_known_by_its_type_however_it_is_written() -> None:
    head = OK + b"CONTENT-type:  Text/Event-Stream ; charset=UTF-8\r\nTRANSFER-encoding: Chunked\r\n\r\n"
    async with stage(OddOnce(head + chunk(EVENTS) + b"0\r\n\r\n")) as now, client_of(now) as client:
        answered = await client.ask(ASKED_AS_STREAM)
        assert answered.body == EVENTS
        told = await told_and_well(now)
        assert (told.outcome, told.report.generated_tokens) == (Outcome.COMPLETED, 4)


async def test_headers_that_are_repeated_stay_so() -> None:
    head = (
        OK + b"Set-Cookie: a=1\r\nx-many: 1\r\nSet-Cookie: b=2\r\nX-Many: 2\r\nX-Empty:\r\nX-Latin: caf\xe9\r\n"
        b"Connection: keep-alive\r\nConnection: x-hop , X-Other\r\nX-Hop: 1\r\nX-Other: 1\r\n"
    )
    async with stage(OddOnce(head + HELD)) as now, client_of(now) as client:
        answered = await client.ask(ASKED)
        headers = answered.head.headers
        assert (headers["set-cookie"], headers["x-many"]) == (["a=1", "b=2"], ["1", "2"])
        assert (headers["x-empty"], headers["x-latin"]) == ([""], ["caf\xe9"])
        assert not {"x-hop", "x-other", "connection"} & headers.keys()
        await told_and_well(now)


@pytest.mark.parametrize("is_apart", [False, True], ids=["together", "apart"])
async def test_trailers_are_no_headers(is_apart: bool) -> None:
    """Where all comes at once they are known before the client has had the headers."""
    trailers = b"0\r\nX-Trailer: 1\r\nX-Paceline-Profile: other\r\nContent-Type: text/plain\r\n\r\n"

    async def trailing(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(CHUNKED_HEAD + chunk(BODY) + (b"" if is_apart else trailers))
        if is_apart:
            await connection.write(trailers)

    async with stage(trailing) as now, client_of(now) as client:
        for _ in range(2):
            answered = await client.ask(ASKED)
            assert (answered.body, answered.is_whole) == (BODY, True)
            assert "x-trailer" not in answered.head.headers
            assert answered.head.one("x-paceline-profile") == "small"
            assert answered.head.one("content-type") == "application/json"
            assert (await now.next_told()).outcome is Outcome.COMPLETED
        assert len(now.engine.connections) == 1


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 9\r\n", b"Content-Length: 0\r\n"])
async def test_an_answer_that_can_have_no_body(status: bytes, length: bytes) -> None:
    async with (
        stage(OddOnce(b"HTTP/1.1 %b\r\nX-Kept: 1\r\n%b\r\n" % (status, length))) as now,
        client_of(now) as client,
    ):
        answered = await client.ask(ASKED)
        assert (answered.status, answered.body) == (int(status[:3]), b"")
        assert not {"content-length", "transfer-encoding"} & answered.head.headers.keys()
        # Its connection serves the client on.
        assert (await client.ask(ASKED)).body == BODY
        for _ in range(2):
            assert (await now.next_told()).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("extra", [b"x", b"garbage\r\n\r\n", b"\0\0\0", whole(b"evil")])
async def test_what_follows_an_answer_is_nobodys(extra: bytes) -> None:
    async with stage(OddOnce(whole(BODY) + extra)) as now, client_of(now) as client:
        answered = await client.ask(ASKED)
        assert (answered.status, answered.body, answered.is_whole) == (200, BODY, True)
        assert (await told_and_well(now)).outcome is Outcome.COMPLETED
        assert len(now.engine.connections) == 2


NO_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a page": b"<html><body>It works</body></html>",
    "NUL bytes": b"\0" * 100,
    "TLS": b"\x15\x03\x01\x00\x02\x02\x28",
    "NUL in a status": b"HTTP/1.1 2\x000 OK\r\n" + HELD,
    "NUL in a name": OK + b"X\0Y: 1\r\n" + HELD,
    "NUL in a value": OK + b"X: a\0b\r\n" + HELD,
    "a control character": OK + b"X: a\x0bb\r\n" + HELD,
    "a folded value": OK + b"X: one\r\n two\r\n\tthree\r\n" + HELD,
    "a folded type": OK + b"Content-Type:\r\n text/event-stream\r\n" + HELD,
    "a space before the colon": OK + b"X : y\r\n" + HELD,
    "no colon": OK + b"X\r\n" + HELD,
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 14\n\n" + BODY,
    "status 999": b"HTTP/1.1 999 So what\r\n" + HELD,
    "status 042": b"HTTP/1.1 042 So what\r\n" + HELD,
    "status 20": b"HTTP/1.1 20 OK\r\n" + HELD,
    "two lengths": OK + b"Content-Length: 14\r\n" + HELD,
    "a list of lengths": OK + b"Content-Length: 14, 14\r\n\r\n" + BODY,
    "a length below zero": OK + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length beyond numbers": OK + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY,
    "length and chunks": OK + b"Transfer-Encoding: chunked\r\n" + HELD,
    "a size that is none": CHUNKED_HEAD + b"zz\r\n" + BODY,
    "a size beyond numbers": CHUNKED_HEAD + b"f" * 17 + b"\r\n" + BODY,
    "a long header": OK + b"X: " + b"y" * 300_000 + b"\r\n" + HELD,
    "many headers": OK + b"X: 1234567\r\n" * 40_000 + HELD,
    "a header without end": OK + b"X: " + b"y" * 800_000,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nx",
}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", NO_HTTP)
async def test_what_is_no_http_is_said_to_be_none(name: str, is_stream: bool) -> None:
    async with stage(OddOnce(NO_HTTP[name])) as now, client_of(now) as client:
        await asked_of(client, is_stream)
        answered = await client.answer()
        assert answered.status == 502
        assert "is not HTTP: " in answered.error
        assert "callback" not in answered.error
        told = await told_and_well(now)
        assert (told.outcome, told.status_code, told.error) == (Outcome.UPSTREAM_FAILED, 502, answered.error)
        assert now.lent.failed == ["small"]


SHORT = {
    "less than its length": OK + b"Content-Length: 20\r\n\r\n" + BODY,
    "half a chunk": CHUNKED_HEAD + chunk(BODY)[:-6],
    "no last chunk": CHUNKED_HEAD + chunk(BODY),
    "half a trailer": CHUNKED_HEAD + chunk(BODY) + b"0\r\nX: y",
    "no chunks where some were promised": OK + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
}
GARBLED = {
    "a bad size": CHUNKED_HEAD + chunk(BODY) + b"zz\r\n",
    "a chunk without end": CHUNKED_HEAD + chunk(BODY)[:-2] + b"xx",
    "a trailer that frames": CHUNKED_HEAD + chunk(BODY) + b"0\r\nContent-Length: 3\r\n\r\n",
    "trailers without end": CHUNKED_HEAD + chunk(BODY) + b"0\r\nX: " + b"y" * 800_000,
    "many trailers": CHUNKED_HEAD + chunk(BODY) + b"0\r\n" + b"X: 1234567\r\n" * 40_000,
    "an extension without end": CHUNKED_HEAD + chunk(BODY) + b"5;a=" + b"x" * 800_000,
}


@pytest.mark.parametrize("name", [*SHORT, *GARBLED])
async def test_an_answer_that_breaks_off_is_seen_to_break_off(name: str) -> None:
    answer = SHORT.get(name) or GARBLED[name]
    async with stage(OddOnce(answer, closes=name in SHORT)) as now, client_of(now) as client:
        answered = await client.ask(ASKED)
        assert answered.status == 200
        assert not answered.is_whole
        assert BODY.startswith(answered.body)
        told = await told_and_well(now)
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 200)
        assert told.error is not None
        assert ("is not HTTP" in told.error) is (name in GARBLED)
        assert now.upstreams.connection_count(INSTANCE_ID) == 1


FRAMES = {
    "until it closes": OK + b"Content-Type: text/event-stream\r\nConnection: close\r\n\r\n%b",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n%b",
}


@pytest.mark.parametrize("name", FRAMES)
async def test_a_stream_that_ends_with_its_connection_is_whole_at_its_end_mark_only(name: str) -> None:
    for sent, outcome in ((EVENTS, Outcome.COMPLETED), (event("a"), Outcome.UPSTREAM_FAILED)):
        async with stage(OddOnce(FRAMES[name] % sent, closes=True)) as now, client_of(now) as client:
            answered = await client.ask(ASKED_AS_STREAM)
            assert answered.is_whole
            assert answered.body.startswith(sent)
            assert (b'"error"' in answered.body) is (outcome is Outcome.UPSTREAM_FAILED)
            assert (await told_and_well(now)).outcome is outcome


@pytest.mark.parametrize("closes", [False, True])
async def test_a_stream_of_a_known_length_can_still_be_given_its_error(closes: bool) -> None:
    length = 5000 if closes else len(event("a"))
    head = OK + b"Content-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % length
    async with stage(OddOnce(head + event("a"), closes=closes)) as now, client_of(now) as client:
        answered = await client.ask(ASKED_AS_STREAM)
        assert answered.is_whole
        assert b'"upstream-failed"' in answered.body.removeprefix(event("a"))
        assert (await told_and_well(now)).outcome is Outcome.UPSTREAM_FAILED


@pytest.mark.parametrize("closes", [False, True])
async def test_an_answer_may_overtake_its_request(closes: bool) -> None:
    """An engine that does not want the body says so before it has read it."""
    refusal = b'{"error":{"code":413,"message":"too large","type":"invalid_request_error"}}'

    async def refuse(request: EngineRequest, connection: EngineConnection) -> None:
        if not request.body:
            await connection.write(whole(refusal, status=b"413 Payload Too Large"))
            if closes:
                connection.writer.close()
            else:
                await connection.gone.wait()
        else:
            await connection.write(whole(BODY))

    async with stage(refuse) as now, client_of(now) as client:
        await client.post(b'{"model":"small","prompt":"%b"}' % (b"x" * 3_000_000), headers="X-Unread: 1\r\n")
        answered = await client.answer()
        assert (answered.status, answered.body) == (413, refusal)
        told = await told_and_well(now)
        assert (told.outcome, told.error) == (Outcome.UPSTREAM_ERROR, "the engine reported invalid_request_error (413)")
        assert len(now.engine.connections) == 2, "the rest of the body lies in the other"


async def test_nul_bytes_pass_where_any_bytes_may() -> None:
    body = bytes(range(256)) * 3
    async with stage(OddOnce(CHUNKED_HEAD + chunk(body) + b"0\r\n\r\n")) as now, client_of(now) as client:
        assert (await client.ask(ASKED)).body == body
        assert (await told_and_well(now)).outcome is Outcome.COMPLETED
    stream = b"data: \0\n\n" + EVENTS
    async with stage(OddOnce(STREAM_HEAD + chunk(stream) + b"0\r\n\r\n")) as now, client_of(now) as client:
        assert (await client.ask(ASKED_AS_STREAM)).body == stream
        assert (await told_and_well(now)).outcome is Outcome.COMPLETED
