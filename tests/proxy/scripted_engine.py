"""A real HTTP server on a Unix socket whose every byte the test writes itself."""

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_SECONDS = 10.0


async def within(awaitable: Awaitable[object], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait, but not for ever."""
    async with asyncio.timeout(seconds):
        await awaitable


@dataclass
class EngineRequest:
    """One request as it came; `headers` in lower case."""

    line: bytes
    headers: dict[bytes, list[bytes]]
    body: bytes


@dataclass
class EngineConnection:
    """The engine's end of one connection. `gone` is set when the other end has closed it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, data: bytes) -> None:
        """Write and wait until the socket has taken it."""
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Write one chunk of a chunked body; b"" ends it."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def watch(self) -> None:
        """Wait until the other end closes."""
        while True:
            try:
                if not await self.reader.read(65536):
                    break
            except ConnectionError:
                break
        self.gone.set()

    def cut(self) -> None:
        """Close at once, without an end."""
        self.writer.transport.abort()

    def vanish(self) -> None:
        """Close before anything else runs on this event loop: the other end cannot have noticed yet."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)


Script = Callable[[EngineRequest, EngineConnection], Awaitable[None]]


@dataclass
class ScriptedEngine:
    """What the engine has seen so far."""

    socket_path: str
    port: int | None = None
    requests: list[EngineRequest] = field(default_factory=list)
    connections: list[EngineConnection] = field(default_factory=list)


@asynccontextmanager
async def scripted_engine(script: Script, *, on_port: bool = False) -> AsyncIterator[ScriptedEngine]:
    """An engine that runs `script` for each request; several requests may come on one connection.

    The body of a request with a header `X-Unread` is left where it is.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connection = EngineConnection(reader, writer)
        engine.connections.append(connection)
        try:
            while True:
                request = await _read_request(reader)
                engine.requests.append(request)
                await script(request, connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            connection.gone.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            tasks.discard(task)

    with tempfile.TemporaryDirectory() as folder:
        engine = ScriptedEngine(str(Path(folder, "engine.sock")))
        if on_port:
            server: asyncio.Server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=65536)
            engine.port = server.sockets[0].getsockname()[1]
        else:
            server = await asyncio.start_unix_server(serve, engine.socket_path, limit=65536)
        try:
            yield engine
        finally:
            server.close()
            served = list(tasks)
            for task in served:
                task.cancel()
            await asyncio.gather(*served, return_exceptions=True)
            await asyncio.sleep(0)  # the loop closes what was aborted in its next turn


async def _read_request(reader: asyncio.StreamReader) -> EngineRequest:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rows = head[:-4].split(b"\r\n")
    headers: dict[bytes, list[bytes]] = {}
    for row in rows:
        name, _, value = row.partition(b":")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    length = 0 if b"x-unread" in headers else int(headers.get(b"content-length", [b"0"])[0])
    return EngineRequest(line, headers, await reader.readexactly(length))


def whole(body: bytes, *, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """A whole answer with its length."""
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status,
        len(body),
        more,
        body,
    )


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"X-Accel-Buffering: no\r\nServer: engine\r\n\r\n"
)


def event(text: str) -> bytes:
    """An event that carries output."""
    return b'data: {"choices":[{"finish_reason":null,"delta":{"content":"%b"}}]}\n\n' % text.encode()


LAST_EVENT = (
    b'data: {"choices":[{"finish_reason":"stop","delta":{}}],"timings":{"cache_n":1,"prompt_n":9,"prompt_ms":1.5,'
    b'"predicted_n":4,"predicted_ms":20.25,"draft_n":6,"draft_n_accepted":5}}\n\n'
)
DONE_EVENT = b"data: [DONE]\n\n"
