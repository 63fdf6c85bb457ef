"""/upstream/{profile}/…: any path of an engine."""

import gzip
import json
import random

import pytest
from proxy.relay_stage import client_of, stage
from proxy.scripted_engine import DONE_EVENT, LAST_EVENT, STREAM_HEAD, EngineConnection, EngineRequest, whole

from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome


async def echo(request: EngineRequest, connection: EngineConnection) -> None:
    """Answers with the body it was sent."""
    await connection.write(whole(request.body, more=b"Set-Cookie: a=b\r\nConnection: keep-alive\r\nUpgrade: x\r\n"))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
async def test_any_method_and_path_pass_as_they_are(method: str) -> None:
    async with stage(echo) as now, client_of(now) as client:
        target = "/a%2Fb/%C3%A9?x=1&model=other"
        head = f"{method} /upstream/org%2Fsmall{target} HTTP/1.1\r\nHost: relay\r\nContent-Length: 7\r\n"
        await client.send(f"{head}Cookie: c\r\nX-Api-Key: k\r\nTE: x\r\nX-Kept: 1\r\n\r\nany\0\r\n.".encode())
        received = await client.head()
        assert await client.rest() == b"any\0\r\n."
        (request,) = now.engine.requests
        assert request.line == f"{method} {target} HTTP/1.1".encode()
        assert request.headers == {
            b"host": [b"engine"],
            b"authorization": [b"Bearer launch-key"],
            b"content-length": [b"7"],
            b"x-kept": [b"1"],
        }
        assert received.one("x-paceline-profile") == "small"
        assert "upgrade" not in received.headers
        told = await now.next_told()
        assert (told.endpoint, told.requested_model, told.route_reason) == (Endpoint.UPSTREAM, "org/small", "alias")
        assert (told.outcome, told.report, told.stream) == (Outcome.COMPLETED, EngineReport(), False)


@pytest.mark.parametrize(
    ("request_line", "is_scrape"),
    [
        ("GET /upstream/small/metrics", True),
        ("GET /upstream/org%2Fsmall/metrics?x=1", True),
        ("GET /upstream/small/metrics/x", False),
        ("GET /upstream/small/slots", False),
        ("POST /upstream/small/metrics", False),
    ],
)
async def test_who_reads_the_metrics_of_an_engine_is_known(request_line: str, is_scrape: bool) -> None:
    async with stage(echo) as now, client_of(now) as client:
        await client.send(f"{request_line} HTTP/1.1\r\nHost: relay\r\nContent-Length: 1\r\n\r\n.".encode())
        assert (await client.head()).status == 200
        await now.next_told()
        assert now.scraped == ["small"] * is_scrape


async def test_the_page_of_the_engine_comes_as_it_is_kept() -> None:
    page = gzip.compress(b"<!doctype html>" * 1000)

    async def compressed(request: EngineRequest, connection: EngineConnection) -> None:
        assert request.headers[b"accept-encoding"] == [b"gzip, br"]
        assert request.headers[b"if-none-match"] == [b'"x"']
        await connection.write(whole(page, more=b'Content-Encoding: gzip\r\nETag: "y"\r\n'))

    async with stage(compressed) as now, client_of(now) as client:
        ask = b'GET /upstream/small/ HTTP/1.1\r\nHost: relay\r\nAccept-Encoding: gzip, br\r\nIf-None-Match: "x"\r\n\r\n'
        await client.send(ask)
        received = await client.head()
        assert await client.rest() == page
        assert (received.one("content-encoding"), received.one("etag")) == ("gzip", '"y"')
        assert now.engine.requests[0].line == b"GET / HTTP/1.1"
        assert (await now.next_told()).outcome == Outcome.COMPLETED


@pytest.mark.parametrize("query", ["", "?a=b"])
async def test_the_page_is_elsewhere(query: str) -> None:
    """Its links are relative to a path that ends in a slash."""
    async with stage(echo) as now, client_of(now) as client:
        await client.send(f"GET /upstream/org%2Fsmall{query} HTTP/1.1\r\nHost: relay\r\n\r\n".encode())
        received = await client.head()
        assert (received.status, received.one("location")) == (307, f"./org%2Fsmall/{query}")
        assert not now.engine.requests


async def test_a_head_request_has_no_body() -> None:
    async def head_only(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(whole(b"").replace(b"Content-Length: 0", b"Content-Length: 1234"))

    async with stage(head_only) as now, client_of(now) as client:
        await client.send(b"HEAD /upstream/small/ HTTP/1.1\r\nHost: relay\r\n\r\n")
        received = await client.head()
        assert (received.status, received.one("content-length")) == (200, "1234")
        assert (await now.next_told()).outcome == Outcome.COMPLETED


async def test_an_answer_without_a_body() -> None:
    async def not_modified(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n')

    async with stage(not_modified) as now, client_of(now) as client:
        await client.send(b"GET /upstream/small/bundle.js HTTP/1.1\r\nHost: relay\r\n\r\n")
        received = await client.head()
        assert (received.status, received.headers.get("transfer-encoding")) == (304, None)
        assert (await now.next_told()).outcome == Outcome.COMPLETED


async def test_the_numbers_of_a_stream_that_is_known() -> None:
    async def chat(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(LAST_EVENT + DONE_EVENT)
        await connection.chunk(b"")

    async with stage(chat) as now, client_of(now) as client:
        await client.post(b'{"stream":true}', path="/upstream/small/v1/chat/completions")
        await client.head()
        assert await client.rest() == LAST_EVENT + DONE_EVENT
        told = await now.next_told()
        assert (told.endpoint, told.stream, told.report.generated_tokens) == (Endpoint.UPSTREAM, True, 4)
        assert now.engine.requests[0].line == b"POST /v1/chat/completions HTTP/1.1"


async def test_a_stream_that_is_not_known_ends_where_it_ends() -> None:
    async def unknown(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(b"data: anything\n\n")
        await connection.chunk(b"")

    async with stage(unknown) as now, client_of(now) as client:
        await client.send(b"GET /upstream/small/v1/stream?conv_id=x HTTP/1.1\r\nHost: relay\r\n\r\n")
        await client.head()
        assert await client.rest() == b"data: anything\n\n"
        assert (await now.next_told()).outcome == Outcome.COMPLETED


async def test_a_body_of_many_chunks_passes_both_ways() -> None:
    body = random.Random(1).randbytes(5_000_000)  # noqa: S311
    async with stage(echo) as now, client_of(now) as client:
        await client.send(b"PUT /upstream/small/slots HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 300_000):
            part = body[start : start + 300_000]
            await client.send(b"%x\r\n%b\r\n" % (len(part), part))
        await client.send(b"0\r\n\r\n")
        await client.head()
        assert await client.rest() == body
        assert now.engine.requests[0].headers[b"content-length"] == [b"5000000"]
        await now.next_told()


@pytest.mark.parametrize(
    ("target", "headers", "code"),
    [
        ("/upstream/nobody/props", "", "model-unknown"),
        ("/upstream//props", "", "model-not-named"),
        ("/upstream/small/props", "Connection: Upgrade\r\nUpgrade: WebSocket\r\n", "upgrade-refused"),
        ("/upstream/cold/props", "", "profile-not-running"),
    ],
)
async def test_what_is_refused(target: str, headers: str, code: str) -> None:
    async with stage(echo) as now, client_of(now) as client:
        await client.send(f"GET {target} HTTP/1.1\r\nHost: relay\r\n{headers}\r\n".encode())
        received = await client.head()
        error = json.loads(await client.rest())["error"]
        told = await now.next_told()
        assert error["type"] == code
        # What the client named stands beside it.
        kept = "no profile answers to that name" if code == "model-unknown" else error["message"]
        assert (told.outcome, told.status_code, told.error) == (Outcome.REJECTED, received.status, kept)
        assert (told.requested_model == "nobody") == (code == "model-unknown")
        assert not now.engine.requests


async def test_another_upgrade_is_passed_over() -> None:
    """HTTP clients offer HTTP/2 like that, and are content without."""
    async with stage(echo) as now, client_of(now) as client:
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        await client.send(b"GET /upstream/small/props HTTP/1.1\r\nHost: relay\r\n" + offer)
        assert (await client.head()).status == 200
        await client.rest()
        await now.next_told()
        assert not {b"upgrade", b"http2-settings"} & now.engine.requests[0].headers.keys()
