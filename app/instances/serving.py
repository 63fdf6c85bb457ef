"""An instance that serves, until something ends that."""

import asyncio
from collections.abc import Callable
from enum import Enum

from app.instances.canary import CanaryPolicy, until_unresponsive
from app.instances.holds import Holds
from app.instances.waiting import beside
from app.llama_server.endpoints import EngineClient
from app.llama_server.log_lines import Failure


class End(Enum):
    """Why serving is over, where it is no failure."""

    ASKED = "asked"
    EXITED = "exited"
    IDLE = "idle"


async def until_over(
    holds: Holds,
    client: Callable[[], EngineClient],
    canary: CanaryPolicy,
    stop_asked: asyncio.Event,
    exited: asyncio.Task[int],
    idle_timeout_seconds: float | None,
) -> Failure | End:
    """Wait for the first of: asked to stop, exited, idle for too long, or not answering though it lives (a failure).

    Requests may come while this returns: whoever acts on IDLE looks at the holds again.
    """
    async with beside(until_unresponsive(holds, client, canary), stop_asked.wait()) as (unresponsive, asked):
        while True:
            left_seconds = None
            if idle_timeout_seconds is not None:
                left_seconds = max(0.0, idle_timeout_seconds - holds.idle_seconds)
            await asyncio.wait({unresponsive, asked, exited}, timeout=left_seconds, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return End.EXITED
            if asked.done():
                return End.ASKED
            if unresponsive.done():
                failure: Failure = unresponsive.result()
                return failure
            if idle_timeout_seconds is not None and holds.idle_seconds >= idle_timeout_seconds:
                return End.IDLE
