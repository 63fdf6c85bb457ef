"""One answer out of a stream, as the client, the engine and the record see it."""

import asyncio
import json

import pytest
from proxy.chat_events import PIECES, USAGE
from proxy.relay_stage import client_of, stage
from proxy.scripted_engine import STREAM_HEAD, EngineConnection, EngineRequest, Script, whole, within

from app.proxy.observer import Outcome

ASKED = b'{"model":"small","messages":[{"role":"user","content":"hi"}],"max_tokens":4}'


def answers(*pieces: bytes, ends: bool = True) -> Script:
    async def script(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for piece in pieces:
            await connection.chunk(piece)
        if ends:
            await connection.chunk(b"")
        else:
            connection.cut()

    return script


async def test_a_request_for_one_answer_is_made_as_a_stream_and_answered_as_one() -> None:
    async with stage(answers(*PIECES)) as now, client_of(now) as client:
        await client.post(ASKED)
        received = await client.head()
        whole = json.loads(await client.rest())
        assert received.status == 200
        assert received.one("content-type") == "application/json; charset=utf-8"
        assert "x-accel-buffering" not in received.headers
        assert received.one("x-paceline-profile") == "small"
        assert whole["object"] == "chat.completion"
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"] == USAGE
        asked = json.loads(now.engine.requests[0].body)
        assert asked["stream"] is True
        assert asked["messages"] == json.loads(ASKED)["messages"]
        told = await now.next_told()
        assert (told.outcome, told.stream, told.status_code) == (Outcome.COMPLETED, False, 200)
        assert (told.report.generated_tokens, told.report.prompt_tokens) == (2, 3)
        # A stream tells when its first token came, also to who did not ask for one.
        assert told.time_to_first_token_us is not None
        assert now.released == ["small"]


@pytest.mark.parametrize("pieces", [1, 3])
async def test_a_stream_that_is_cut_is_no_answer(pieces: int) -> None:
    async with stage(answers(*PIECES[:pieces], ends=False)) as now, client_of(now) as client:
        await client.post(ASKED)
        assert (await client.head()).status == 502
        await client.rest()
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 502)


async def test_an_error_within_the_stream_is_the_engines_error_answer() -> None:
    error = {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}
    broken = b"data: " + json.dumps(error).encode() + b"\n\n"
    async with stage(answers(*PIECES[:2], broken)) as now, client_of(now) as client:
        await client.post(ASKED)
        assert (await client.head()).status == 500
        assert json.loads(await client.rest()) == error
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_ERROR, 500)


async def test_an_error_before_the_stream_passes_as_it_is() -> None:
    body = b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}'

    async def refuse(_: EngineRequest, connection: EngineConnection) -> None:
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await connection.write(head % len(body) + body)

    async with stage(refuse) as now, client_of(now) as client:
        await client.post(ASKED)
        assert (await client.head()).status == 400
        assert await client.rest() == body
        assert (await now.next_told()).outcome is Outcome.UPSTREAM_ERROR


async def test_a_client_that_leaves_closes_the_stream_behind_its_answer() -> None:
    has_begun, is_closed = asyncio.Event(), asyncio.Event()

    async def endless(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(PIECES[1])
        has_begun.set()
        await connection.watch()
        is_closed.set()

    async with stage(endless) as now, client_of(now) as client:
        await client.post(ASKED)
        await within(has_begun.wait())
        await client.leave()
        await within(is_closed.wait(), 1.0)
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.CLIENT_GONE, None)


async def test_an_engine_whose_stream_is_not_understood_is_asked_for_one_answer_then_and_from_now_on() -> None:
    odd = PIECES[1].replace(b'"delta": {', b'"delta": {"refusal": null, ')
    assert odd != PIECES[1]
    whole_answer = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"whole"}}]}'
    asked: list[bool] = []

    async def newer(request: EngineRequest, connection: EngineConnection) -> None:
        asked.append(json.loads(request.body).get("stream", False))
        if asked[-1]:
            await connection.write(STREAM_HEAD)
            await connection.chunk(odd)
            await connection.watch()
        else:
            await connection.write(whole(whole_answer))

    async with stage(newer) as now, client_of(now) as client:
        for _ in range(2):
            await client.post(ASKED)
            assert (await client.head()).status == 200
            assert await client.rest() == whole_answer
            told = await now.next_told()
            assert (told.outcome, told.error, told.time_to_first_token_us) == (Outcome.COMPLETED, None, None)
        assert now.lent.failed == []
    assert asked == [True, False, False]
