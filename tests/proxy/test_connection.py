"""One connection, against a server that writes every byte itself."""

import asyncio

import pytest
from proxy.engine_calls import HEAD, fetch, until, upstream_of, writes
from proxy.scripted_engine import EngineConnection, EngineRequest, scripted_engine, whole

from app.errors import UpstreamFailed
from app.proxy.upstream import Upstreams

ANSWERS = {
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
        200,
        b"hello",
    ),
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
