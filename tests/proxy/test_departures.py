"""Who leaves, stops or lags, and what is closed or waits then."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from proxy.engine_calls import until
from proxy.relay_stage import INSTANCE_ID, client_of, stage
from proxy.scripted_engine import (
    CHUNKED_HEAD,
    DONE_EVENT,
    STREAM_HEAD,
    EngineConnection,
    EngineRequest,
    event,
    whole,
    within,
)

from app.instances.state import InstanceState, InstanceStateChanged
from app.proxy.asgi import WATCH_CLIENT, Message
from app.proxy.observer import Outcome

STREAM_BODY = b'{"model":"small","stream":true}'


async def nothing_yet(connection: EngineConnection) -> None:
    """Before the first byte."""


async def some_events(connection: EngineConnection) -> None:
    """In the middle of a stream."""
    await connection.write(STREAM_HEAD)
    await connection.chunk(event("a"))


async def half_an_answer(connection: EngineConnection) -> None:
    """In the middle of an answer."""
    await connection.write(CHUNKED_HEAD)
    await connection.chunk(b'{"choices":')


Phase = Callable[[EngineConnection], Awaitable[None]]
PHASES: list[Phase] = [nothing_yet, some_events, half_an_answer]


class Stuck:
    """An engine that comes to a phase, and then only waits for the relay to close."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self.reached = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, _: EngineRequest, connection: EngineConnection) -> None:
        await self._phase(connection)
        self.reached.set()
        await connection.watch()
        self.closed.set()


@pytest.mark.parametrize("phase", PHASES)
async def test_when_the_client_leaves_the_engine_is_left_within_a_second(phase: Phase) -> None:
    engine = Stuck(phase)
    async with stage(engine) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await within(engine.reached.wait())
        if phase is not nothing_yet:
            await client.head()
            await client.piece()
        await client.leave()
        await within(engine.closed.wait(), seconds=1.0)
        told = await now.next_told()
        assert told.outcome == Outcome.CLIENT_GONE
        assert told.status_code == (None if phase is nothing_yet else 200)
        assert now.released == ["small"]
        assert now.upstreams.connection_count(INSTANCE_ID) == 0


async def test_a_client_that_asked_for_more_before_it_left_is_missed_all_the_same() -> None:
    """What it sends ahead is not answered before, but it is read: else nobody would see the end behind it."""
    engine = Stuck(some_events)
    async with stage(engine) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await within(engine.reached.wait())
        await client.post(STREAM_BODY)
        await client.leave()
        await within(engine.closed.wait(), seconds=1.0)
        assert (await now.next_told()).outcome == Outcome.CLIENT_GONE


async def test_a_client_that_leaves_while_it_still_sends_is_told_of() -> None:
    engine = Stuck(nothing_yet)
    async with stage(engine) as now, client_of(now) as client:
        await client.send(b"POST /v1/completions HTTP/1.1\r\nHost: relay\r\nExpect: 100-continue\r\n")
        await client.send(b"Content-Length: 100\r\n\r\n{")
        # Its 100 Continue says that the relay reads.
        assert (await client.head()).status == 100
        await client.leave()
        told = await now.next_told()
        assert (told.outcome, told.profile_id, told.status_code) == (Outcome.CLIENT_GONE, None, None)


@pytest.mark.parametrize("phase", PHASES)
async def test_when_the_instance_stops_its_connections_close_at_once(phase: Phase) -> None:
    engine = Stuck(phase)
    async with stage(engine) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await within(engine.reached.wait())
        if phase is not nothing_yet:
            await client.head()
            await client.piece()
        now.relay.on_instance_state(InstanceStateChanged(INSTANCE_ID, "small", InstanceState.DRAINING))
        assert now.relay.active()
        now.relay.on_instance_state(InstanceStateChanged(INSTANCE_ID, "small", InstanceState.STOPPING))
        await within(engine.closed.wait(), seconds=1.0)
        told = await now.next_told()
        assert told.outcome == Outcome.UPSTREAM_FAILED
        assert told.error is not None
        assert "stopped" in told.error
        if phase is nothing_yet:
            assert (await client.head()).status == 502
        elif phase is some_events:
            assert told.error.encode() in await client.rest()
        else:
            with pytest.raises(asyncio.IncompleteReadError):
                await client.rest()


@pytest.mark.parametrize("phase", PHASES)
async def test_a_request_can_be_cancelled(phase: Phase) -> None:
    engine = Stuck(phase)
    async with stage(engine) as now, client_of(now) as client:
        await client.post(STREAM_BODY)
        await within(engine.reached.wait())
        if phase is not nothing_yet:
            await client.head()
            await client.piece()
        (observation,) = now.relay.active()
        assert now.relay.cancel(observation.request_id)
        await within(engine.closed.wait(), seconds=1.0)
        told = await now.next_told()
        assert (told.outcome, told.error) == (Outcome.CANCELLED, "the request was cancelled")
        assert told.request_id == observation.request_id
        assert not now.relay.cancel(observation.request_id)


async def test_a_request_that_is_still_being_sent_can_be_cancelled() -> None:
    async with stage(Stuck(nothing_yet)) as now, client_of(now) as client:
        await client.send(b"POST /v1/completions HTTP/1.1\r\nHost: relay\r\nContent-Length: 100\r\n\r\n{")
        await until(lambda: bool(now.relay.active()))
        (observation,) = now.relay.active()
        assert now.relay.cancel(observation.request_id)
        assert (await client.head()).status >= 400
        told = await now.next_told()
        assert (told.outcome, told.error) == (Outcome.CANCELLED, "the request was cancelled")


async def test_a_slow_reader_makes_the_engine_wait() -> None:
    piece = event("x" * 60_000)
    written = 0
    full = asyncio.Event()

    async def flood(_: EngineRequest, connection: EngineConnection) -> None:
        nonlocal written
        await connection.write(STREAM_HEAD)
        while written < 2000:
            try:
                async with asyncio.timeout(0.5):
                    await connection.chunk(piece)
            except TimeoutError:
                full.set()
                await connection.writer.drain()
            written += 1
        await connection.chunk(DONE_EVENT)
        await connection.chunk(b"")

    async with stage(flood) as now, client_of(now, receive_buffer_bytes=65536) as client:
        await client.post(STREAM_BODY)
        await client.head()
        await within(full.wait())
        # 120 MB wait to be sent; no more than the buffers of sockets and relay has left the engine.
        assert written * len(piece) < 16_000_000
        while not client.ended:
            await client.piece()
        assert written == 2000
        told = await now.next_told()
        assert (told.outcome, told.error) == (Outcome.COMPLETED, None)


async def test_a_slow_reader_that_leaves_is_told_of() -> None:
    async def flood(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(whole(b"x" * 50_000_000))

    async with stage(flood) as now, client_of(now, receive_buffer_bytes=65536) as client:
        await client.post(b'{"model":"small"}')
        await client.head()
        await client.leave()
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.CLIENT_GONE, 200)


SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/completions",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
}


async def short_answer(_: EngineRequest, connection: EngineConnection) -> None:
    await connection.write(whole(b"{}"))


async def one_request() -> Message:
    return {"type": "http.request", "body": b'{"model":"small"}', "more_body": False}


async def test_a_client_that_leaves_while_the_last_bytes_wait_is_told_of() -> None:
    watches: set[Callable[[], None]] = set()

    def watch(tell: Callable[[], None]) -> Callable[[], None]:
        watches.add(tell)
        return lambda: watches.discard(tell)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            (tell,) = watches
            tell()

    async with stage(short_answer) as now:
        await now.relay({**SCOPE, WATCH_CLIENT: watch}, one_request, send)
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.CLIENT_GONE, 200)
    assert not watches


async def test_many_at_once_do_not_mix() -> None:
    async def echo(request: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(whole(request.body))

    async with stage(echo) as now:

        async def one(number: int) -> None:
            async with client_of(now) as client:
                for turn in range(5):
                    body = json.dumps({"model": "small", "prompt": f"{number}/{turn}"}).encode()
                    await client.post(body)
                    await client.head()
                    assert await client.rest() == body

        await within(asyncio.gather(*(one(number) for number in range(30))))
        outcomes = [(await now.next_told()).outcome for _ in range(150)]
        assert set(outcomes) == {Outcome.COMPLETED}
        assert len(now.engine.connections) <= 30
