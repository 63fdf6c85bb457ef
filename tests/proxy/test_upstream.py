"""The client of the data path, against a server that writes every byte itself."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from app.errors import UpstreamFailed
from app.instances.lease import Upstream
from app.proxy.upstream import Upstreams
from proxy.scripted_engine import (
    DEADLINE_SECONDS,
    EngineConnection,
    EngineRequest,
    ScriptedEngine,
    scripted_engine,
    whole,
)

HEAD = b"GET / HTTP/1.1\r\nhost: engine\r\ncontent-length: 0\r\n\r\n"


def upstream_of(engine: ScriptedEngine) -> Upstream:
    return Upstream(7, "key", socket_path=engine.socket_path)


async def fetch(upstreams: Upstreams, upstream: Upstream, *, head_only: bool = False) -> tuple[int, bytes]:
    """Status and whole body of one answer."""
    call = upstreams.call(upstream)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await call.start(HEAD, b"", head_only=head_only)
            body = b""
            while data := await answer.read():
                body += data
            return answer.status, body
    finally:
        call.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def hello(_: EngineRequest, connection: EngineConnection) -> None:
    await connection.write(whole(b"hello"))


def writes(answer: bytes, *, then_close: bool = False) -> Callable[[EngineRequest, EngineConnection], object]:
    async def script(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(answer)
        if then_close:
            connection.writer.close()

    return script


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


ANSWERS = {
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", 200, b"hello"),
    "length": (whole(b"hello"), 200, b"hello"),
    "empty": (whole(b""), 200, b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nX: y\r\n\r\n" + whole(b"hello"), 200, b"hello"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_way_to_end_an_answer_leaves_the_connection_usable(name: str) -> None:
    answer, status, body = ANSWERS[name]
    async with scripted_engine(writes(answer)) as engine:
        upstreams = Upstreams()
        for _ in range(3):
            assert await fetch(upstreams, upstream_of(engine)) == (status, body)
        assert len(engine.connections) == 1
        upstreams.close()


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_may_come_in_single_bytes(name: str) -> None:
    answer, status, body = ANSWERS[name]

    async def byte_by_byte(_: EngineRequest, connection: EngineConnection) -> None:
        for index in range(len(answer)):
            await connection.write(answer[index : index + 1])
            await asyncio.sleep(0)

    async with scripted_engine(byte_by_byte) as engine:
        upstreams = Upstreams()
        assert await fetch(upstreams, upstream_of(engine)) == (status, body)
        upstreams.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n"])
async def test_a_body_may_end_with_the_connection(head: bytes) -> None:
    async with scripted_engine(writes(head + b"hello", then_close=True)) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.connections) == 2


async def test_the_answer_to_head_has_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    async with scripted_engine(writes(head)) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, upstream_of(engine), head_only=True) == (200, b"")
        upstreams.close()


async def test_connection_close_is_heeded() -> None:
    async with scripted_engine(writes(whole(b"hello", more=b"Connection: close\r\n"))) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.connections) == 2
        await until(lambda: upstreams.connection_count(7) == 0)


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
        seen = b""
        with pytest.raises(UpstreamFailed, match=r"nothing for 0\.3 s"):
            while data := await answer.read():
                seen += data
        call.close()
        assert seen == b"xxxxxx"


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


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 60_000) * 6,
    ],
)
async def test_what_is_not_http(answer: bytes) -> None:
    async with scripted_engine(writes(answer)) as engine:
        upstreams = Upstreams()
        with pytest.raises(UpstreamFailed, match="is not HTTP"):
            await fetch(upstreams, upstream_of(engine))
        await until(lambda: upstreams.connection_count(7) == 0)


async def test_bytes_that_nobody_asked_for_spoil_the_connection() -> None:
    async with scripted_engine(writes(whole(b"hello") + whole(b"evil"))) as engine:
        upstreams = Upstreams()
        for _ in range(2):
            assert await fetch(upstreams, upstream_of(engine)) == (200, b"hello")
        assert len(engine.connections) == 2
        upstreams.close()


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


async def test_a_reader_that_lags_holds_the_engine_back() -> None:
    piece = b"x" * 65536
    written = 0

    async def flood(_: EngineRequest, connection: EngineConnection) -> None:
        nonlocal written
        await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * 500))
        for _n in range(500):
            await connection.write(piece)
            written += 1

    async with scripted_engine(flood) as engine:
        upstreams = Upstreams(buffer_bytes=128 * 1024)
        call = upstreams.call(upstream_of(engine))
        answer = await call.start(HEAD, b"")
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.05)
        assert written * len(piece) < 4_000_000
        size = 0
        while data := await answer.read():
            # What waits is bounded by the limit and one read of the event loop.
            assert len(data) <= 128 * 1024 + 256 * 1024
            size += len(data)
        assert size == 500 * len(piece)
        call.close()
        assert upstreams.connection_count(7) == 1
        upstreams.close()
