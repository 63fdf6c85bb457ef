"""A relay under a real uvicorn on a loopback port, and a client that reads what it likes when it likes."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from proxy.relay_client import Client
from proxy.scripted_engine import DEADLINE_SECONDS, Script, ScriptedEngine, scripted_engine

from app.cli.http_protocol import HttpProtocol
from app.cli.serve import is_no_cut
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
from app.proxy.scrapes import EngineScraped
from app.proxy.upstream import Upstreams

INSTANCE_ID = 0xABC
MODEL = {
    "id": "small",
    "object": "model",
    "created": 1_760_000_000,
    "owned_by": "paceline",
    "profile": "small",
    "state": "ready",
}
CONTEXT = LaunchContext("small", 3, "b11434", "0123456789abcdef", "cpu", "none")


@dataclass
class Stage:
    """A running relay, what it told, and the engine behind it."""

    relay: Relay
    upstreams: Upstreams
    engine: ScriptedEngine
    port: int
    told: "asyncio.Queue[RequestFinished]"
    scraped: list[str]
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
    """A relay with the profiles `small` (alias `org/small`), `cold`, which is never ready, `warming`: ready when
    the test says so, and `broken`, with which the service itself fails.
    """
    upstreams = upstreams or Upstreams()
    told: asyncio.Queue[RequestFinished] = asyncio.Queue()
    lent = Lent()
    scraped: list[str] = []
    warm: asyncio.Future[PacelineError | None] = asyncio.get_running_loop().create_future()

    is_asked_to_warm = asyncio.Event()

    def publish(event: Event) -> None:
        if isinstance(event, EngineScraped):
            scraped.append(event.profile_id)
            return
        assert isinstance(event, RequestFinished)
        told.put_nowait(event)

    async with scripted_engine(script) as engine:

        def lease(profile_id: str, _is_look: bool) -> Lease:
            if profile_id == "broken":
                raise RuntimeError("a fault of ours")
            if profile_id != "small":
                raise ProfileNotRunning(f"{profile_id} does not run")
            return lend(profile_id)

        def lend(profile_id: str) -> Lease:
            upstream = Upstream(INSTANCE_ID, "launch-key", socket_path=engine.socket_path)
            return Lease(upstream, CONTEXT, Holder(profile_id, lent))

        async def lease_when_ready(profile_id: str, _caller: str | None) -> Lease:
            if profile_id == "cold":
                raise ProfileNotRunning("cold does not run")
            is_asked_to_warm.set()
            problem = await asyncio.shield(warm)
            if problem is not None:
                raise problem
            return lend(profile_id)

        relay = Relay(
            names=lambda: {
                "small": "small",
                "org/small": "small",
                "cold": "cold",
                "warming": "warming",
                "broken": "broken",
            },
            profile=lambda profile_id: parse_profile({"id": profile_id, "target": {"path": "x.gguf"}}),
            candidates=lambda ids: [Candidate(each, each == "small") for each in sorted(ids)],
            lease=lease,
            lease_when_ready=lease_when_ready,
            models=lambda: [MODEL],
            publish=publish,
            render_error=render_error,
            upstreams=upstreams,
            ids=TimeOrderedIds(),
            **limits,
        )
        async with _served(relay) as port:
            yield Stage(relay, upstreams, engine, port, told, scraped, lent, warm, is_asked_to_warm)
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


class Faults(logging.Handler):
    """What the server says of the application, but for answers that were cut."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.addFilter(is_no_cut)

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(f"{record.getMessage()} {record.exc_info}")


@asynccontextmanager
async def _served(relay: Relay) -> AsyncIterator[int]:
    config = uvicorn.Config(
        relay, http=HttpProtocol, ws="none", lifespan="off", access_log=False, log_level="error", log_config=None
    )
    config.load()
    # The server's own loop wakes every 0.1 s, which a hundred tests would wait for; its protocol is what counts.
    server = uvicorn.Server(config)
    await server.on_tick(0)

    def connect() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=server.server_state, app_state={})

    listening = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    faults = Faults()
    log = logging.getLogger("uvicorn.error")
    log.addHandler(faults)
    try:
        yield listening.sockets[0].getsockname()[1]
        assert not faults.told
    finally:
        log.removeHandler(faults)
        listening.close()
        tasks = list(server.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
