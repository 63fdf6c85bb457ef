"""Calls of engines by the relay's own client, and what such an engine may do."""

import asyncio
from collections.abc import Callable

from proxy.scripted_engine import DEADLINE_SECONDS, EngineConnection, EngineRequest, Script, ScriptedEngine, whole

from app.instances.lease import Upstream
from app.proxy.upstream import Upstreams

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
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


async def hello(_: EngineRequest, connection: EngineConnection) -> None:
    await connection.write(whole(b"hello"))


def writes(answer: bytes, *, then_close: bool = False) -> Script:
    async def script(_: EngineRequest, connection: EngineConnection) -> None:
        await connection.write(answer)
        if then_close:
            connection.writer.close()

    return script
