"""From "the child lives" to "it serves as the profile asks": health, identity, speculation."""

import asyncio
import os
import socket
import struct
import sys
from dataclasses import dataclass

from app.instances.lease import Upstream
from app.llama_server.endpoints import EngineClient

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the slots of a proven server say; None where they do not tell in a form that is known."""

    speculates: bool | None = None
    slots: int | None = None
    context_per_slot: int | None = None


class ForeignServer(Exception):
    """Whoever answers at the address is not our child."""


async def become_ready(upstream: Upstream, pid: int) -> Readiness:
    """Wait until the server serves, prove that it is our child, and ask its slots.

    Waits without end: the caller has the deadline and knows when the child exits. Raises ForeignServer.
    """
    async with upstream.client() as client:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not await client.is_healthy():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, _LONGEST_PAUSE_SECONDS)
        if not await _is_ours(upstream, pid, client):
            raise ForeignServer
        facts = await client.slots()
        return Readiness(facts.speculates, facts.slots, facts.context_per_slot) if facts else Readiness()


async def _is_ours(upstream: Upstream, pid: int, client: EngineClient) -> bool:
    if upstream.socket_path is not None and sys.platform == "linux":
        listener = await asyncio.to_thread(_listener_pid, upstream.socket_path)
        # The child leads a session of its own: what a wrapper script started belongs to it.
        return listener == pid or os.getsid(listener) == pid
    return await client.knows_key()


def _listener_pid(socket_path: str) -> int:
    """The process that listens on a Unix socket, as the kernel tells it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        probe.connect(socket_path)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
