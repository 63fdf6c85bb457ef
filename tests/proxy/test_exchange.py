"""Streams and failures, as the client, the engine and the record see them."""

import asyncio
import json

import pytest
from proxy.relay_stage import client_of, stage
from proxy.scripted_engine import (
    CHUNKED_HEAD,
    DONE_EVENT,
    LAST_EVENT,
    STREAM_HEAD,
    EngineConnection,
    EngineRequest,
    event,
    within,
)

from app.llama_server.timings import EngineReport
from app.proxy.observer import Outcome

STREAM_BODY = b'{"model":"small","stream":true}'
REPORT = EngineReport(10, 1, 4, 1500, 20250, 6, 5, "stop")


async def test_events_arrive_one_by_one() -> None:
    confirmed = asyncio.Semaphore(0)

    async def wait_for_each(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for number in range(20):
            await connection.chunk(event(str(number)))
            await within(confirmed.acquire())
        await connection.chunk(LAST_EVENT + DONE_EVENT)
        await connection.chunk(b"")

    async with stage(wait_for_each) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        received = await client.head()
        for number in range(20):
            assert await client.piece() == event(str(number))
            confirmed.release()
        assert await client.rest() == LAST_EVENT + DONE_EVENT
        told = await now.next_told()

        assert received.one("x-accel-buffering") == "no"
        assert received.one("cache-control") == "no-cache"
        assert received.one("content-type") == "text/event-stream"
        assert received.one("server") == "uvicorn"
        assert (told.outcome, told.stream, told.report) == (Outcome.COMPLETED, True, REPORT)
        assert told.time_to_first_token_us is not None
        assert told.time_to_first_token_us <= told.duration_us


async def test_the_first_token_is_neither_a_comment_nor_progress() -> None:
    parts = [b":\n\n", b'data: {"prompt_progress":{"total":9}}\n\n', event("first"), event("second")]
    confirmed = asyncio.Semaphore(0)

    async def slow_prompt(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for part in parts:
            await connection.chunk(part)
            await within(confirmed.acquire())
        await connection.chunk(LAST_EVENT + DONE_EVENT)
        await connection.chunk(b"")

    async with stage(slow_prompt) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await client.head()
        (observation,) = now.relay.active()
        seen, signs = [], []
        for part in parts:
            assert await client.piece() == part
            seen.append(observation.time_to_first_token_us is not None)
            signs.append(now.lent.pieces)
            confirmed.release()
        await client.rest()
        assert seen == [False, False, True, True]
        assert signs == [0, 1, 2, 3], "a comment is no sign that the engine computes"
        told = await now.next_told()
        assert told.time_to_first_token_us == observation.time_to_first_token_us


async def test_usage_after_the_finish_reason_is_read() -> None:
    finish = b'data: {"choices":[{"finish_reason":"length","delta":{}}]}\n\n'
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4}}\n\n'

    async def finish_then_usage(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for part in (finish[:20], finish[20:] + usage[:9], usage[9:], DONE_EVENT, b""):
            await connection.chunk(part)

    async with stage(finish_then_usage) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await client.head()
        assert await client.rest() == finish + usage + DONE_EVENT
        told = await now.next_told()
        assert told.outcome == Outcome.COMPLETED
        assert told.report == EngineReport(prompt_tokens=10, generated_tokens=4, finish_reason="length")


async def test_a_stream_longer_than_what_is_kept_is_still_read_at_its_end() -> None:
    async def long_stream(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        for _number in range(40):
            await connection.chunk(event("x" * 10_000) * 2)
        await connection.chunk(LAST_EVENT + DONE_EVENT)
        await connection.chunk(b"")

    async with stage(long_stream) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await client.head()
        assert (await client.rest()).count(b"data: ") == 82
        assert (await now.next_told()).report == REPORT


# What fails.


@pytest.mark.parametrize("head", [b"", STREAM_HEAD, CHUNKED_HEAD], ids=["nothing", "stream-head", "answer-head"])
async def test_what_fails_before_the_first_byte_is_an_honest_error(head: bytes) -> None:
    async def die(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(head)
        connection.cut()

    async with stage(die) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        received = await client.head()
        error = json.loads(await client.rest())["error"]
        told = await now.next_told()
        assert (received.status, received.one("x-paceline-profile")) == (502, "small")
        assert "closed the connection" in error["message"]
        assert (told.outcome, told.status_code, told.error) == (Outcome.UPSTREAM_FAILED, 502, error["message"])
        assert told.report == EngineReport()


async def test_the_status_waits_for_the_first_byte() -> None:
    head_sent, go_on = asyncio.Event(), asyncio.Event()

    async def head_first(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        head_sent.set()
        await within(go_on.wait())
        await connection.chunk(DONE_EVENT)
        await connection.chunk(b"")

    async with stage(head_first) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await within(head_sent.wait())
        head = asyncio.ensure_future(client.head())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(head), 0.05)
        go_on.set()
        assert (await head).status == 200
        assert await client.rest() == DONE_EVENT
        assert (await now.next_told()).outcome == Outcome.COMPLETED


@pytest.mark.parametrize("end", ["cut", "clean"])
@pytest.mark.parametrize("half", [b"", b'data: {"choi'])
async def test_a_stream_without_its_end_mark_ends_with_an_error_event(end: str, half: bytes) -> None:
    async def break_off(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(event("a") + half)
        if end == "clean":
            await connection.chunk(b"")
        else:
            connection.cut()

    async with stage(break_off) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        assert (await client.head()).status == 200
        stream = await client.rest()
        told = await now.next_told()
        events = stream.removeprefix(event("a")).strip().split(b"\n\n")
        assert len(events) == 1
        assert json.loads(events[0].removeprefix(b"data: "))["error"]["message"] == told.error
        assert b"[DONE]" not in stream
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 200)


async def test_a_connection_cut_after_the_end_mark_harms_nobody() -> None:
    async def cut_after_end(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(LAST_EVENT + DONE_EVENT)
        connection.cut()

    async with stage(cut_after_end) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await client.head()
        assert await client.rest() == LAST_EVENT + DONE_EVENT
        told = await now.next_told()
        assert (told.outcome, told.error, told.report) == (Outcome.COMPLETED, None, REPORT)


async def test_an_answer_that_is_cut_is_cut_for_the_client_too() -> None:
    async def break_off(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(CHUNKED_HEAD)
        await connection.chunk(b'{"choices":')
        connection.cut()

    async with stage(break_off) as now, client_of(now) as client:
        await client.post(b'{"model":"small"}')
        await client.head()
        with pytest.raises(asyncio.IncompleteReadError):
            await client.rest()
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 200)


async def test_an_error_event_of_the_engine_is_told_as_such() -> None:
    error = b'data: {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}\n\n'

    async def run_out(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(STREAM_HEAD)
        await connection.chunk(event("a"))
        await connection.chunk(error)
        await connection.chunk(b"")

    async with stage(run_out) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await client.head()
        assert await client.rest() == event("a") + error
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_ERROR, 200)
        assert told.error == "the engine reported server_error (500)"


async def test_a_fault_of_ours_is_answered_recorded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def unasked(_: EngineRequest, connection: EngineConnection) -> None:
        raise AssertionError("the engine was asked")

    async with stage(unasked) as now, client_of(now) as client:
        await client.post(b'{"model":"broken"}')
        assert (await client.head()).status >= 400
        assert json.loads(await client.rest())["error"]["type"] == "internal-error"
        told = await now.next_told()
        assert (told.outcome, told.error) == (Outcome.REJECTED, "RuntimeError: a fault of ours")
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a fault of ours",)]
