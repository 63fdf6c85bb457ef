"""Less than the service: other HTTP clients, and the relay alone. docs/decisions/0003-relay-client.md compares them.

Run as `python -m bench.variants NAME PORT SOCKET`; all but `answer` forward to the engine on that socket.
"""

import sys
import time
from collections.abc import Callable, Mapping

import aiohttp
import httpx
import uvicorn

from app.cli.http_protocol import HttpProtocol
from app.errors import PacelineError
from app.events import EventBus
from app.identifiers import TimeOrderedIds
from app.instances.holds import Holds
from app.instances.lease import LaunchContext, Lease, Upstream
from app.profiles.profile import parse_profile
from app.proxy.asgi import Answer, Header, Receive, Scope, Send, send_answer
from app.proxy.endpoints import Dialect
from app.proxy.headers import request_head
from app.proxy.relay import Relay
from app.proxy.request import read_body
from app.proxy.upstream import Upstreams
from bench.answers import ANSWER

App = Callable[[Scope, Receive, Send], object]
_CONTEXT = LaunchContext("bench", 1, "bench", "0" * 16, "cpu", "none")
_JSON = (b"content-type", b"application/json")
_MAX_BODY_BYTES = 1 << 26


def answer(_: str) -> App:
    """Asks nobody: what the ASGI server itself costs."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, None, _MAX_BODY_BYTES)
        await send_answer(send, Answer(200, [_JSON], ANSWER))

    return app


def bare(socket_path: str) -> App:
    """Our client, and nothing of the relay."""
    upstreams = Upstreams()
    upstream = Upstream(1, "bench-key", socket_path=socket_path)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, None, _MAX_BODY_BYTES)
        call = upstreams.call(upstream)
        try:
            head = request_head("POST", scope["path"].encode(), scope["headers"], upstream.api_key, len(body))
            got = await call.start(head, body)
            await _start(send, got.status, got.headers)
            while chunk := await got.read():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            call.close()

    return app


def with_aiohttp(socket_path: str) -> App:
    """The same with aiohttp."""
    sessions: list[aiohttp.ClientSession] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, None, _MAX_BODY_BYTES)
        if not sessions:  # it wants a running loop
            connector = aiohttp.UnixConnector(socket_path, limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector, auto_decompress=False))
        async with sessions[0].post(f"http://engine{scope['path']}", data=body, headers=_text(scope)) as got:
            await _start(send, got.status, list(got.raw_headers))
            async for chunk in got.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def with_httpx(socket_path: str) -> App:
    """The same with httpx."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=socket_path, limits=limits), timeout=60)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, None, _MAX_BODY_BYTES)
        url = f"http://engine{scope['path']}"
        async with client.stream("POST", url, content=body, headers=_text(scope)) as got:
            await _start(send, got.status_code, list(got.headers.raw))
            async for chunk in got.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def relay(socket_path: str) -> App:
    """The relay and its events, which nobody hears."""
    upstream = Upstream(1, "bench-key", socket_path=socket_path)

    holds = Holds(time.monotonic, lambda: None)
    profile = parse_profile({"id": "bench", "target": {"path": "bench.gguf"}})

    def lend(_: str, is_look: bool = False) -> Lease:
        return holds.take(upstream, _CONTEXT)

    async def lend_later(profile_id: str, _: str | None) -> Lease:
        return lend(profile_id)

    def render_error(error: PacelineError, _: Dialect) -> Answer:
        return Answer(502, [(b"content-type", b"text/plain")], error.message.encode())

    return Relay(
        names=lambda: {"bench": "bench"},
        profile=lambda _: profile,
        candidates=lambda _: [],
        lease=lend,
        lease_when_ready=lend_later,
        models=list,
        publish=EventBus().publish,
        render_error=render_error,
        upstreams=Upstreams(),
        ids=TimeOrderedIds(),
    )


VARIANTS: Mapping[str, Callable[[str], App]] = {
    "answer": answer,
    "bare": bare,
    "aiohttp": with_aiohttp,
    "httpx": with_httpx,
    "relay": relay,
}


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    kept: list[Header] = [(name.lower(), value) for name, value in headers if name.lower() != b"transfer-encoding"]
    await send({"type": "http.response.start", "status": status, "headers": kept})


def _text(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name != b"host"}


if __name__ == "__main__":
    uvicorn.run(
        VARIANTS[sys.argv[1]](sys.argv[3]),
        port=int(sys.argv[2]),
        loop="uvloop",
        http=HttpProtocol,
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
