"""An instance that serves, until something ends that."""

import asyncio
from collections.abc import Callable
from enum import Enum

from app.instances.canary import CanaryPolicy, until_unresponsive
from app.instances.holds import Holds
from app.instances.waiting import beside
from app.llama_server.endpoints import EngineClient
from app.llama_server.log_lines import Failure
from app.profiles.profile import Serving

_LOOK_SECONDS = 5.0


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
    serving: Callable[[], Serving],
) -> Failure | End:
    """Wait for the first of: asked to stop, exited, idle for too long, or not answering though it lives (a failure).

    `serving` is asked again and again: a profile may change while it serves.

    Requests may come while this returns: whoever acts on IDLE looks at the holds again.
    """
    async with beside(until_unresponsive(holds, client, canary), stop_asked.wait()) as (unresponsive, asked):
        while True:
            limit_seconds = serving().idle_limit_seconds
            left_seconds = _LOOK_SECONDS if limit_seconds is None else limit_seconds - holds.idle_seconds
            if left_seconds <= 0:
                return End.IDLE
            await asyncio.wait(
                {unresponsive, asked, exited},
                timeout=min(left_seconds, _LOOK_SECONDS),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if exited.done():
                return End.EXITED
            if asked.done():
                return End.ASKED
            if unresponsive.done():
                failure: Failure = unresponsive.result()
                return failure
