"""The engine closes idle connections after five seconds: one that is found dead is replaced once, and without a word.

Nothing else is sent a second time.
"""

import asyncio

import pytest
from proxy.chat_events import PIECES
from proxy.engine_calls import fetch, hello, until, upstream_of
from proxy.relay_client import Client
from proxy.relay_stage import INSTANCE_ID, Stage, client_of, stage
from proxy.scripted_engine import (
    CHUNKED_HEAD,
    DONE_EVENT,
    LAST_EVENT,
    STREAM_HEAD,
    EngineConnection,
    EngineRequest,
    Script,
    event,
    scripted_engine,
    whole,
)

from app.errors import UpstreamFailed
from app.proxy.observer import Outcome
from app.proxy.upstream import Upstreams

WHOLE = b'{"model":"small","n":2}'
ASSEMBLED = b'{"model":"small","messages":[{"role":"user","content":"hi"}]}'
STREAMED = b'{"model":"small","stream":true}'
EVENTS = event("a") + LAST_EVENT + DONE_EVENT


async def answer(request: EngineRequest, connection: EngineConnection) -> None:
    """What was asked for."""
    if b'"stream":true' in request.body:
        await connection.write(STREAM_HEAD)
        await connection.chunk(EVENTS)
        await connection.chunk(b"")
    else:
        await connection.write(whole(b'{"choices":[]}'))


def first_answers_then(fault: Script) -> Script:
    """An engine that answers the first request, so that its connection is kept, and then has the fault."""
    served = 0

    async def script(request: EngineRequest, connection: EngineConnection) -> None:
        nonlocal served
        served += 1
        await (answer if served == 1 else fault)(request, connection)

    return script


async def prime(now: Stage, client: Client) -> None:
    """One request, so that there is a connection to use again."""
    assert (await client.ask(WHOLE)).status == 200
    assert (await now.next_told()).outcome is Outcome.COMPLETED
    assert now.upstreams.connection_count(INSTANCE_ID) == 1


@pytest.mark.parametrize("body", [WHOLE, STREAMED, b'{"model":"small","x":"%b"}' % (b"y" * 3_000_000)])
async def test_a_connection_that_died_before_anything_was_sent_is_replaced_without_a_word(body: bytes) -> None:
    async with stage(answer) as now, client_of(now) as client:
        await prime(now, client)
        now.engine.connections[0].vanish()
        answered = await client.ask(body)
        assert (answered.status, answered.body) == (200, EVENTS if body is STREAMED else b'{"choices":[]}')
        told = await now.next_told()
        assert (told.outcome, told.status_code, told.error) == (Outcome.COMPLETED, 200, None)
        assert [request.body for request in now.engine.requests] == [WHOLE, body], "the engine was asked once each"
        assert len(now.engine.connections) == 2
        assert now.lent.failed == []


async def test_it_is_found_dead_at_the_sending() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams()
        await fetch(upstreams, upstream_of(engine))
        engine.connections[0].vanish()
        # Nothing has run since that could have taken it out of the pool.
        assert upstreams.connection_count(7) == 1
        assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.requests) == len(engine.connections) == 2
        upstreams.close()


async def test_many_dead_connections_cost_one_attempt() -> None:
    async with stage(answer) as now, client_of(now) as first, client_of(now) as second, client_of(now) as third:
        clients = (first, second, third)
        await asyncio.gather(*(client.ask(WHOLE) for client in clients))
        for _ in clients:
            await now.next_told()
        opened = len(now.engine.connections)
        for connection in now.engine.connections:
            connection.vanish()
        assert (await first.ask(WHOLE)).status == 200
        assert (await now.next_told()).outcome is Outcome.COMPLETED
        assert len(now.engine.connections) == opened + 1


async def test_the_second_attempt_is_the_last() -> None:
    async def die(_: EngineRequest, connection: EngineConnection) -> None:
        connection.cut()

    async with stage(first_answers_then(die)) as now, client_of(now) as client:
        await prime(now, client)
        answered = await client.ask(WHOLE)
        assert answered.status == 502
        assert "before it answered" in answered.error
        told = await now.next_told()
        assert (told.outcome, told.status_code) == (Outcome.UPSTREAM_FAILED, 502)
        assert len(now.engine.requests) == 3
        assert now.lent.failed == ["small"]


async def test_what_an_engine_has_worked_on_is_not_sent_again() -> None:
    """Half a second and more is the behaviour: so long after its sending a request was not lost on the way."""

    async def work_and_close(_: EngineRequest, connection: EngineConnection) -> None:
        await asyncio.sleep(0.6)
        connection.cut()

    async with stage(first_answers_then(work_and_close)) as now, client_of(now) as client:
        await prime(now, client)
        assert (await client.ask(WHOLE)).status == 502
        assert (await now.next_told()).outcome is Outcome.UPSTREAM_FAILED
        assert len(now.engine.requests) == 2


async def test_a_fresh_connection_that_dies_is_not_replaced() -> None:
    async def die(_: EngineRequest, connection: EngineConnection) -> None:
        connection.cut()

    async with stage(die) as now, client_of(now) as client:
        for count in (1, 2):
            assert (await client.ask(WHOLE)).status == 502
            assert (await now.next_told()).outcome is Outcome.UPSTREAM_FAILED
            assert len(now.engine.requests) == len(now.engine.connections) == count


BEGINNINGS = {
    "a byte": b"H",
    "half a status line": b"HTTP/1.1 2",
    "an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
    "a head": STREAM_HEAD,
    "half a chunk": CHUNKED_HEAD + b"ff\r\n{",
    "an event": STREAM_HEAD + b"%x\r\n%b\r\n" % (len(PIECES[1]), PIECES[1]),
}


@pytest.mark.parametrize("body", [WHOLE, ASSEMBLED, STREAMED], ids=["whole", "assembled", "streamed"])
@pytest.mark.parametrize("name", BEGINNINGS)
async def test_what_has_begun_is_never_sent_again(name: str, body: bytes) -> None:
    async def begin_and_die(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(BEGINNINGS[name])
        connection.writer.close()

    async with stage(first_answers_then(begin_and_die)) as now, client_of(now) as client:
        await prime(now, client)
        await client.ask(body)
        assert (await now.next_told()).outcome is Outcome.UPSTREAM_FAILED
        assert len(now.engine.requests) == 2
        async with client_of(now) as other:
            await other.ask(body)
            assert (await now.next_told()).outcome is Outcome.UPSTREAM_FAILED
        assert len(now.engine.requests) == 3


async def test_an_engine_that_speaks_first_is_not_understood() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams()
        await fetch(upstreams, upstream_of(engine))
        # It was in the middle of something when it kept the connection; whose answer would this be?
        engine.connections[0].writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: upstreams.connection_count(7) == 0)
        assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.connections) == 2
        upstreams.close()


async def test_an_engine_that_is_gone_is_told_as_such() -> None:
    async with scripted_engine(hello) as engine:
        upstreams, upstream = Upstreams(), upstream_of(engine)
        await fetch(upstreams, upstream)
    with pytest.raises(UpstreamFailed, match="cannot be reached"):
        await fetch(upstreams, upstream)
    await until(lambda: upstreams.connection_count(7) == 0)
    upstreams.close()
