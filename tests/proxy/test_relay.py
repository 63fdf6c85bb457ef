import json
import random

import pytest
from proxy.relay_stage import CONTEXT, INSTANCE_ID, MODEL, client_of, stage
from proxy.scripted_engine import CHUNKED_HEAD, EngineConnection, EngineRequest, whole

from app.identifiers import id_text
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome

ANSWER = json.dumps(
    {
        "choices": [{"finish_reason": "stop", "message": {"content": "hi"}}],
        "timings": {"cache_n": 0, "prompt_n": 9, "prompt_ms": 1.5, "predicted_n": 4, "predicted_ms": 20.25},
    }
).encode()
REPORT = EngineReport(9, 0, 4, 1500, 20250, finish_reason="stop")


async def answer(_: EngineRequest, connection: EngineConnection) -> None:
    await connection.write(
        whole(ANSWER, more=b"Server: engine\r\nDate: then\r\nX-Kept: 1\r\nKeep-Alive: timeout=5\r\n")
    )


async def test_a_request_passes_and_is_told_of_once() -> None:
    async with stage(answer) as now, client_of(now) as client:
        body = b'{"messages": [ ],  "model":"org/small", "unknown":[1e5]}'
        await client.post(body, path="/v1/completions?x=1", headers="X-Request-Id: mine\r\n")
        received = await client.head()
        assert await client.rest() == ANSWER
        told = await now.next_told()

        (request,) = now.engine.requests
        assert request.line == b"POST /v1/completions?x=1 HTTP/1.1"
        assert request.body == body
        assert received.status == 200
        assert (told.outcome, told.status_code, told.error) == (Outcome.COMPLETED, 200, None)
        assert (told.profile_id, told.requested_model, told.route_reason) == ("small", "org/small", "alias")
        assert (told.instance_id, told.context, told.endpoint) == (INSTANCE_ID, CONTEXT, Endpoint.COMPLETIONS)
        assert (told.stream, told.client_request_id, told.report) == (False, "mine", REPORT)
        assert told.time_to_first_token_us is None
        assert 0 <= told.queue_us <= told.duration_us
        assert now.released == ["small"]


async def test_headers_in_both_directions() -> None:
    async with stage(answer) as now, client_of(now) as client:
        secrets = "Authorization: Bearer client\r\nX-Api-Key: client\r\nCookie: a=b\r\nX-Conversation-Id: 7\r\n"
        body = b'{"model":"small","n":2}'
        await client.post(body, headers=secrets + "X-Kept: yes\r\nConnection: X-Hop\r\nX-Hop: 1\r\n")
        received = await client.head()
        await client.rest()
        told = await now.next_told()

        assert now.engine.requests[0].body == body
        assert now.engine.requests[0].headers == {
            b"host": [b"engine"],
            b"authorization": [b"Bearer launch-key"],
            b"content-length": [str(len(body)).encode()],
            b"x-kept": [b"yes"],
        }
        assert received.one("x-request-id") == id_text(told.request_id)
        assert received.one("x-paceline-profile") == "small"
        assert received.one("x-paceline-instance") == id_text(INSTANCE_ID)
        assert received.one("content-length") == str(len(ANSWER))
        assert received.one("server") == "uvicorn"
        assert received.one("date") != "then"
        assert received.one("x-kept") == "1"
        assert "keep-alive" not in received.headers


@pytest.mark.parametrize("seed", range(3))
async def test_bytes_pass_verbatim_both_ways_however_they_are_cut(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    body = dice.randbytes(dice.randrange(1, 3_000_000))

    async def random_chunks(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(CHUNKED_HEAD)
        start = 0
        while start < len(body):
            size = dice.choice((1, 2, 17, 1000, 70_000, 300_000))
            await connection.chunk(body[start : start + size])
            start += size
        await connection.chunk(b"")

    padding = "".join(dice.choices("abcdefgh äöü", k=200_000))
    asked = json.dumps({"model": "small", "prompt": padding}, ensure_ascii=False).encode()
    async with stage(random_chunks) as now, client_of(now) as client:
        await client.post(asked)
        await client.head()
        assert await client.rest() == body
        assert now.engine.requests[0].body == asked
        assert (await now.next_told()).outcome == Outcome.COMPLETED


async def test_an_error_of_the_engine_passes_unchanged() -> None:
    error = b'{"error":{"code":400,"message":"the request exceeds the available context size","type":"x"}}'

    async def refuse(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(whole(error, status=b"400 Bad Request"))

    async with stage(refuse) as now, client_of(now) as client:
        await client.post(b'{"model":"small","stream":true}')
        assert (await client.head()).status == 400
        assert await client.rest() == error
        told = await now.next_told()
        assert (told.outcome, told.status_code, told.stream) == (Outcome.UPSTREAM_ERROR, 400, True)
        assert told.error == "the engine reported x (400)"


@pytest.mark.parametrize(
    ("body", "status", "profile", "recorded"),
    [
        (b"nonsense", 400, None, "the body is not a JSON object: JSON is malformed: invalid character"),
        (b"{}", 400, None, 'name a profile in "model" or in ?model='),
        (b'{"model":"large"}', 404, None, "no profile answers to that name"),
        (b'{"model":"cold"}', 503, "cold", None),
        (b'{"model":"small","prompt":"%b"}' % (b"x" * 2000), 400, None, None),
    ],
)
async def test_what_is_rejected(body: bytes, status: int, profile: str | None, recorded: str | None) -> None:
    """The client is told more than is kept, where that is its own words."""
    async with stage(answer, max_body_bytes=1000) as now, client_of(now) as client:
        await client.post(body)
        received = await client.head()
        error = json.loads(await client.rest())["error"]
        told = await now.next_told()
        assert received.status == told.status_code == status
        assert (told.outcome, told.error) == (Outcome.REJECTED, recorded or error["message"])
        assert (told.profile_id, told.instance_id, told.report) == (profile, None, EngineReport())
        assert received.one("x-request-id") == id_text(told.request_id)
        assert received.headers.get("x-paceline-profile") == ([profile] if profile else None)
        assert not now.engine.requests


async def test_long_words_of_the_client_are_cut_before_they_are_told() -> None:
    async with stage(answer) as now, client_of(now) as client:
        await client.post(json.dumps({"model": "x" * 5000}).encode())
        assert (await client.head()).status == 404
        told = await now.next_told()
        assert told.requested_model == "x" * 128
        assert told.error == "no profile answers to that name"


async def test_the_models_are_listed() -> None:
    async with stage(answer) as now, client_of(now) as client:
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: relay\r\n\r\n")
        received = await client.head()
        assert received.status == 200
        assert received.one("content-type") == "application/json"
        auto = {**MODEL, "id": "auto", "profile": None}
        assert json.loads(await client.rest()) == {"object": "list", "data": [MODEL, auto]}


@pytest.mark.parametrize(
    ("method", "path", "taken"),
    [
        ("POST", "/v1/chat/completions", True),
        ("POST", "/v1/completions", True),
        ("GET", "/v1/models", True),
        ("GET", "/v1/chat/completions", False),
        ("POST", "/v1/chat/completions/", False),
        ("GET", "/profiles", False),
    ],
)
async def test_what_the_relay_takes(method: str, path: str, taken: bool) -> None:
    async with stage(answer) as now:
        assert now.relay.takes({"type": "http", "method": method, "path": path}) is taken
        assert now.relay.takes({"type": "lifespan"}) is False
