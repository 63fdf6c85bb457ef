"""A relay under a real uvicorn on a loopback port, and a client that reads what it likes when it likes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from proxy.scripted_engine import DEADLINE_SECONDS, Script, ScriptedEngine, scripted_engine

from app.errors import ModelUnknown, PacelineError, ProfileNotRunning, UpstreamFailed
from app.events import Event
from app.identifiers import TimeOrderedIds
from app.instances.lease import LaunchContext, Lease, Upstream
from app.profiles.profile import parse_profile
from app.proxy.asgi import Answer
from app.proxy.auto import Candidate
from app.proxy.endpoints import Dialect
from app.proxy.observer import RequestFinished
from app.proxy.relay import Relay
from app.proxy.upstream import Upstreams

INSTANCE_ID = 0xABC
CONTEXT = LaunchContext("small", 3, "b11434", "0123456789abcdef", "cpu", "none")


@dataclass
class Stage:
    """A running relay, what it told, and the engine behind it."""

    relay: Relay
    upstreams: Upstreams
    engine: ScriptedEngine
    port: int
    told: "asyncio.Queue[RequestFinished]"
    lent: "Lent"
    warm: "asyncio.Future[PacelineError | None]"
    is_asked_to_warm: asyncio.Event

    @property
    def released(self) -> list[str]:
        return self.lent.released

    async def next_told(self) -> RequestFinished:
        """The next finished request."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.told.get()


@dataclass
class Holder:
    """Writes down what becomes of the leases of one profile."""

    profile_id: str
    lent: "Lent"

    def answered(self, lease: Lease) -> None:
        self.lent.answered.append(self.profile_id)

    def came_on(self, lease: Lease) -> None:
        self.lent.pieces += 1

    def released(self, lease: Lease, *, has_failed: bool) -> None:
        self.lent.released.append(self.profile_id)
        if has_failed:
            self.lent.failed.append(self.profile_id)


@dataclass
class Lent:
    """Profiles whose leases were answered, given back, and given back as failed, in order.

    `pieces` counts those of answers that came on.
    """

    answered: list[str] = field(default_factory=list)
    pieces: int = 0
    released: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@asynccontextmanager
async def stage(script: Script, *, upstreams: Upstreams | None = None, **limits: float) -> AsyncIterator[Stage]:
    """A relay with the profiles `small` (alias `org/small`), `cold`, which is never ready, and `warming`: ready when
    the test says so.
    """
    upstreams = upstreams or Upstreams()
    told: asyncio.Queue[RequestFinished] = asyncio.Queue()
    lent = Lent()
    warm: asyncio.Future[PacelineError | None] = asyncio.get_running_loop().create_future()

    is_asked_to_warm = asyncio.Event()

    def publish(event: Event) -> None:
        assert isinstance(event, RequestFinished)
        told.put_nowait(event)

    async with scripted_engine(script) as engine:

        def lease(profile_id: str) -> Lease:
            if profile_id != "small":
                raise ProfileNotRunning(f"{profile_id} does not run")
            return lend(profile_id)

        def lend(profile_id: str) -> Lease:
            upstream = Upstream(INSTANCE_ID, "launch-key", socket_path=engine.socket_path)
            return Lease(upstream, CONTEXT, Holder(profile_id, lent))

        async def lease_when_ready(profile_id: str) -> Lease:
            if profile_id == "cold":
                raise ProfileNotRunning("cold does not run")
            is_asked_to_warm.set()
            problem = await asyncio.shield(warm)
            if problem is not None:
                raise problem
            return lend(profile_id)

        relay = Relay(
            names=lambda: {"small": "small", "org/small": "small", "cold": "cold", "warming": "warming"},
            profile=lambda profile_id: parse_profile({"id": profile_id, "target": {"path": "x.gguf"}}),
            candidates=lambda ids: [Candidate(each, each == "small") for each in sorted(ids)],
            lease=lease,
            lease_when_ready=lease_when_ready,
            models=lambda: [{"id": "small", "object": "model"}],
            publish=publish,
            render_error=render_error,
            upstreams=upstreams,
            ids=TimeOrderedIds(),
            **limits,
        )
        async with _served(relay) as port:
            yield Stage(relay, upstreams, engine, port, told, lent, warm, is_asked_to_warm)
            assert told.empty(), "a request was told of that no test asked about"
            assert not relay.active()
        upstreams.close()


def render_error(error: PacelineError, dialect: Dialect) -> Answer:
    """As api/ does it, in short."""
    statuses: Mapping[type, int] = {UpstreamFailed: 502, ModelUnknown: 404, ProfileNotRunning: 503}
    status = statuses.get(type(error), 400)
    document: dict[str, object] = {"type": "error"} if dialect is Dialect.ANTHROPIC else {}
    document["error"] = {"message": error.message, "type": error.code, "param": None, "code": status}
    return Answer(status, [(b"content-type", b"application/json")], json.dumps(document).encode())


@asynccontextmanager
async def _served(relay: Relay) -> AsyncIterator[int]:
    config = uvicorn.Config(
        relay, http="httptools", ws="none", lifespan="off", access_log=False, log_level="critical", log_config=None
    )
    config.load()
    # The server's own loop wakes every 0.1 s, which a hundred tests would wait for; its protocol is what counts.
    server = uvicorn.Server(config)
    await server.on_tick(0)

    def connect() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=server.server_state, app_state={})

    listening = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        tasks = list(server.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Received:
    """The head of an answer; header names in lower case, each value in its order."""

    status: int
    headers: dict[str, list[str]]

    def one(self, name: str) -> str:
        """The value of a header that must come exactly once."""
        (value,) = self.headers[name]
        return value


class Client:
    """One connection to the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunked = False
        self._left = 0
        self.ended = False

    async def post(self, body: bytes, *, path: str = "/v1/chat/completions", headers: str = "") -> None:
        """Send a request; `headers` are whole lines."""
        head = f"POST {path} HTTP/1.1\r\nHost: relay\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        await self.send(head.encode() + body)

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Received:
        """Status and headers of the next answer."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
        line, *rows = head[:-4].decode().split("\r\n")
        headers: dict[str, list[str]] = {}
        for row in rows:
            name, _, value = row.partition(": ")
            headers.setdefault(name.lower(), []).append(value)
        self._chunked = "transfer-encoding" in headers
        self._left = int(headers.get("content-length", ["0"])[0])
        self.ended = False
        return Received(int(line.split()[1]), headers)

    async def piece(self) -> bytes:
        """The next chunk; b"" at the end. Raises IncompleteReadError where the answer is cut."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            if not self._chunked:
                body, self._left = await self._reader.readexactly(self._left), 0
                self.ended = True
                return body
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
            self.ended = size == 0
            return data[:-2]

    async def rest(self) -> bytes:
        """The body to its end."""
        pieces = []
        while not self.ended:
            pieces.append(await self.piece())
        return b"".join(pieces)

    async def read_until_closed(self) -> bytes:
        """Whatever comes until the relay closes."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._reader.read()

    async def leave(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def client_of(stage: Stage, *, receive_buffer_bytes: int | None = None) -> AsyncIterator[Client]:
    """A connection to the relay; a small receive buffer makes a slow reader felt at once."""
    plain = socket.socket()
    plain.setblocking(False)
    if receive_buffer_bytes is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", stage.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=65536)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
