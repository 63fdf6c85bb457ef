"""The pool of connections, against a server that writes every byte itself."""

import asyncio
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from proxy.engine_calls import HEAD, fetch, hello, until, upstream_of
from proxy.scripted_engine import DEADLINE_SECONDS, EngineConnection, EngineRequest, scripted_engine

from app.errors import UpstreamFailed
from app.instances.lease import Upstream
from app.proxy.upstream import Upstreams


async def test_a_connection_is_used_again() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams()
        for _ in range(5):
            assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.connections) == 1
        assert upstreams.connection_count(7) == 1
        upstreams.close()


async def test_an_engine_on_a_port() -> None:
    async with scripted_engine(hello, on_port=True) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, Upstream(7, "key", port=engine.port)) == (200, b"hello")
        assert len(engine.connections) == 1
        upstreams.close()


async def test_an_engine_whose_queue_of_connections_is_full_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen(0)
        waiting_count = 0
        with suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(path)
                waiting_count += 1
        upstreams = Upstreams()
        asked = asyncio.create_task(fetch(upstreams, Upstream(7, "key", socket_path=path)))
        await asyncio.sleep(0)
        assert not asked.done()

        def serve() -> None:
            listening.settimeout(DEADLINE_SECONDS)
            for _ in range(waiting_count):
                listening.accept()[0].close()
            with listening.accept()[0] as accepted:
                accepted.recv(65536)
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        await asyncio.to_thread(serve)
        assert await asked == (200, b"hello")
        upstreams.close()


async def test_a_connection_that_the_engine_closed_meanwhile_is_not_used() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams()
        await fetch(upstreams, upstream_of(engine))
        engine.connections[0].writer.close()
        await until(lambda: upstreams.connection_count(7) == 0)
        assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.requests) == 2
        upstreams.close()


async def test_a_reused_connection_that_dies_unanswered_is_replaced_once() -> None:
    async def die_when_reused(request: EngineRequest, connection: EngineConnection) -> None:
        if len(engine.requests) > 1:
            connection.cut()
        else:
            await hello(request, connection)

    async with scripted_engine(die_when_reused) as engine:
        upstreams = Upstreams()
        await fetch(upstreams, upstream_of(engine))
        with pytest.raises(UpstreamFailed, match="before it answered"):
            await fetch(upstreams, upstream_of(engine))
        assert len(engine.requests) == 3
        assert len(engine.connections) == 2


async def test_the_request_succeeds_on_the_fresh_connection() -> None:
    async def die_on_the_second(request: EngineRequest, connection: EngineConnection) -> None:
        if len(engine.requests) == 2:
            connection.cut()
        else:
            await hello(request, connection)

    async with scripted_engine(die_on_the_second) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.requests) == 3
        upstreams.close()


async def test_what_has_begun_to_be_answered_is_never_sent_twice() -> None:
    async def begin_then_die(request: EngineRequest, connection: EngineConnection) -> None:
        if len(engine.requests) == 1:
            await hello(request, connection)
        else:
            await connection.write(b"HTTP/1.1 200 OK\r\n")
            connection.writer.close()

    async with scripted_engine(begin_then_die) as engine:
        upstreams = Upstreams()
        await fetch(upstreams, upstream_of(engine))
        with pytest.raises(UpstreamFailed, match="in the middle"):
            await fetch(upstreams, upstream_of(engine))
        assert len(engine.requests) == 2


async def test_an_idle_connection_is_closed_before_the_engine_does_it() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams(keep_alive_seconds=0.05)
        await fetch(upstreams, upstream_of(engine))
        assert upstreams.connection_count(7) == 1
        await until(lambda: upstreams.connection_count(7) == 0)
        await until(engine.connections[0].gone.is_set)


async def test_silence_ends_at_the_idle_timeout_and_every_byte_extends_it() -> None:
    async def slow(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        for _n in range(6):
            await asyncio.sleep(0.1)
            await connection.write(b"x")
        await connection.watch()

    async with scripted_engine(slow) as engine:
        call = Upstreams(idle_timeout_seconds=0.3).call(upstream_of(engine))
        answer = await call.start(HEAD, b"")
        for _ in range(6):
            assert await answer.read() == b"x"
        with pytest.raises(UpstreamFailed, match=r"nothing for 0\.3 s"):
            await answer.read()
        call.close()


async def test_an_engine_that_cannot_be_reached() -> None:
    upstreams = Upstreams()
    with pytest.raises(UpstreamFailed, match="cannot be reached"):
        await fetch(upstreams, Upstream(7, "key", socket_path="/nonexistent/engine.sock"))
    assert upstreams.connection_count(7) == 0


async def test_an_engine_that_does_not_accept_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        with pytest.raises(UpstreamFailed, match="no answer in time"):
            await fetch(Upstreams(connect_timeout_seconds=0.1), Upstream(7, "key", port=port))
        for filler in fillers:
            filler.close()


async def test_closing_an_instance_leaves_the_others_alone() -> None:
    async def wait(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.watch()

    async with scripted_engine(wait) as stopped, scripted_engine(hello) as other:
        upstreams = Upstreams()
        elsewhere = Upstream(8, "key", socket_path=other.socket_path)
        await fetch(upstreams, elsewhere)
        waiting = asyncio.ensure_future(fetch(upstreams, upstream_of(stopped)))
        await until(lambda: len(stopped.requests) == 1)
        upstreams.close_instance(7)
        with pytest.raises(UpstreamFailed, match="stopped"):
            await waiting
        await until(stopped.connections[0].gone.is_set)
        assert upstreams.connection_count(8) == 1
        await fetch(upstreams, elsewhere)
        assert len(other.connections) == 1
        upstreams.close()


async def test_a_call_that_is_aborted_before_it_starts_sends_nothing() -> None:
    async with scripted_engine(hello) as engine:
        upstreams = Upstreams()
        call = upstreams.call(upstream_of(engine))
        call.abort(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await call.start(HEAD, b"")
        call.close()
        await until(lambda: upstreams.connection_count(7) == 0)
        assert not engine.requests
