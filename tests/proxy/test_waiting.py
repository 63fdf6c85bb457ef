"""Requests for a profile that is not ready: they wait, give signs of life, and end as they should."""

import asyncio
import json

import pytest
from proxy.relay_stage import Stage, client_of, stage
from proxy.scripted_engine import (
    DONE_EVENT,
    LAST_EVENT,
    STREAM_HEAD,
    EngineConnection,
    EngineRequest,
    Script,
    event,
    within,
)

from app.errors import ModelUnknown, PacelineError
from app.proxy.observer import Observation, Outcome

STREAM = b'{"model":"warming","stream":true}'
WHOLE = b'{"model":"warming"}'
SIGN = b": waiting\n\n"
SECONDS = 0.02


class TooLate(PacelineError):
    """What a load can end with."""

    code = "too-late"


def engine_answers(whole: bytes, *, stream: bool = True) -> Script:
    async def answer(_: EngineRequest, connection: EngineConnection) -> None:
        if stream:
            await connection.write(STREAM_HEAD)
            await connection.chunk(whole)
            await connection.chunk(b"")
        else:
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            await connection.write(head % len(whole) + whole)

    return answer


ANSWER = event("hello") + LAST_EVENT + DONE_EVENT


async def test_a_request_waits_and_is_then_answered_as_any_other() -> None:
    async with stage(engine_answers(ANSWER)) as now, client_of(now) as client:
        await client.post(STREAM)
        await waits(now)
        now.warm.set_result(None)
        received = await client.head()
        assert (received.status, await client.rest()) == (200, ANSWER)
        assert received.one("x-paceline-profile") == "warming"
        assert received.one("x-paceline-instance")
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.COMPLETED, 200)
        assert 0 < told.queue_us <= told.duration_us
        assert now.released == ["warming"]


async def test_a_stream_that_waits_gets_signs_of_life_and_then_the_answer() -> None:
    async with stage(engine_answers(ANSWER), sign_of_life_seconds=SECONDS) as now, client_of(now) as client:
        await client.post(STREAM)
        received = await client.head()
        assert received.status == 200
        assert received.one("content-type") == "text/event-stream"
        assert received.one("x-accel-buffering") == "no"
        assert received.one("x-paceline-profile") == "warming"
        assert [await client.piece(), await client.piece()] == [SIGN, SIGN]
        now.warm.set_result(None)
        rest = await client.rest()
        assert rest.removeprefix(SIGN) == ANSWER or rest.endswith(ANSWER)
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.COMPLETED, 200)
        assert told.report.finish_reason == "stop"


async def test_an_answer_in_one_piece_gets_none() -> None:
    script = engine_answers(b"{}", stream=False)
    async with (
        stage(script, sign_of_life_seconds=SECONDS) as now,
        client_of(now) as client,
        client_of(now) as other,
    ):
        await client.post(WHOLE)
        await other.post(STREAM)
        await other.head()
        # The other has had signs meanwhile.
        assert [await other.piece(), await other.piece()] == [SIGN, SIGN]
        now.warm.set_result(None)
        assert (await client.head()).status == 400
        assert await client.rest() == b"{}"
        await other.rest()
        await now.next_told()
        await now.next_told()


async def test_what_fails_after_the_first_sign_is_an_error_event_with_its_true_status_recorded() -> None:
    async with stage(engine_answers(ANSWER), sign_of_life_seconds=SECONDS) as now, client_of(now) as client:
        await client.post(STREAM)
        assert (await client.head()).status == 200
        await client.piece()
        now.warm.set_result(ModelUnknown("it went"))
        events = (await client.rest()).replace(SIGN, b"")
        assert events.startswith(b"data: {")
        assert json.loads(events.removeprefix(b"data: "))["error"]["message"] == "it went"
        told = await now.next_told()
        assert (told.outcome, told.status_code, told.error) == (Outcome.REJECTED, 404, "it went")


async def test_an_error_of_the_engine_after_the_first_sign_is_an_error_event_too() -> None:
    refusal = b'{"error":{"code":400,\n"message":"too long","type":"exceed_context_size_error"}}'
    script = engine_answers(refusal, stream=False)
    async with stage(script, sign_of_life_seconds=SECONDS) as now, client_of(now) as client:
        await client.post(STREAM)
        assert (await client.head()).status == 200
        await client.piece()
        now.warm.set_result(None)
        events = (await client.rest()).replace(SIGN, b"")
        lines = [line.removeprefix(b"data: ") for line in events.split(b"\n")]
        assert json.loads(b"\n".join(lines))["error"]["message"] == "too long"
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_ERROR, 400)


async def test_an_error_of_the_engine_that_is_cut_off_after_the_first_sign_is_told_as_that() -> None:
    async def cut_off(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 1000\r\n\r\n" + b'{"error":{"code":400,')
        connection.cut()

    async with stage(cut_off, sign_of_life_seconds=SECONDS) as now, client_of(now) as client:
        await client.post(STREAM)
        assert (await client.head()).status == 200
        await client.piece()
        now.warm.set_result(None)
        events = (await client.rest()).replace(SIGN, b"")
        assert "closed the connection" in json.loads(events.removeprefix(b"data: "))["error"]["message"]
        told = await now.next_told()
        assert told.outcome is Outcome.UPSTREAM_FAILED
        assert now.lent.failed == ["warming"]


async def test_without_a_sign_the_error_is_an_answer() -> None:
    async with stage(engine_answers(ANSWER)) as now, client_of(now) as client:
        await client.post(STREAM)
        await waits(now)
        now.warm.set_result(TooLate("it is too late"))
        assert (await client.head()).status == 400
        await client.rest()
        told = await now.next_told()
        assert (told.outcome, told.status_code, told.error) == (Outcome.REJECTED, 400, "it is too late")


async def test_a_client_that_leaves_while_it_waits_is_told_of_at_once() -> None:
    for seconds in (None, SECONDS):
        limits = {} if seconds is None else {"sign_of_life_seconds": seconds}
        async with stage(engine_answers(ANSWER), **limits) as now, client_of(now) as client:
            await client.post(STREAM)
            await waits(now)
            if seconds is not None:
                await client.head()
            await client.leave()
            told = await now.next_told()
            assert (told.outcome, told.status_code) == (Outcome.CLIENT_GONE, None)
            assert told.queue_us == told.duration_us > 0
            assert now.released == []


async def test_a_request_can_be_cancelled_while_it_waits() -> None:
    async with stage(engine_answers(ANSWER)) as now, client_of(now) as client:
        await client.post(WHOLE)
        (observation,) = await waits(now)
        assert now.relay.cancel(observation.request_id)
        await client.head()
        assert b"cancelled" in await client.rest()
        assert (await now.next_told()).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("rounds", range(6))
async def test_a_cancel_counts_whenever_it_comes(rounds: int) -> None:
    """In the very moment, too, in which the hold is there and the request has not noticed."""

    async def answers_never(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.watch()

    async with stage(answers_never) as now, client_of(now) as client:
        await client.post(WHOLE)
        (observation,) = await waits(now)
        now.warm.set_result(None)
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert now.relay.cancel(observation.request_id)
        await client.head()
        assert b"cancelled" in await client.rest()
        assert (await now.next_told()).outcome is Outcome.CANCELLED
        assert len(now.released) <= 1


async def test_a_hold_that_comes_as_the_client_leaves_is_given_back() -> None:
    async with stage(engine_answers(ANSWER)) as now, client_of(now) as client:
        await client.post(WHOLE)
        await waits(now)
        now.warm.set_result(None)
        await client.leave()
        told = await now.next_told()
        assert told.outcome in (Outcome.CLIENT_GONE, Outcome.COMPLETED, Outcome.UPSTREAM_ERROR)
        assert len(now.released) <= 1


async def waits(now: Stage) -> list[Observation]:
    """Until a request waits for its profile."""
    await within(now.is_asked_to_warm.wait())
    return list(now.relay.active())
