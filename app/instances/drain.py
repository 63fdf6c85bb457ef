"""The time that running requests have once a stop was asked for."""

import asyncio
import contextlib
import math

from app.instances.holds import Holds


class Drain:
    """Waits for the last request, or for the deadline, which may come nearer meanwhile."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._until_seconds = math.inf
        self._waiting: asyncio.Timeout | None = None

    def allow(self, seconds: float) -> None:
        """So long from now on, or what was left before, if that is less."""
        self._until_seconds = min(self._until_seconds, asyncio.get_running_loop().time() + seconds)
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(self._until_seconds)

    async def wait(self) -> None:
        """Until nobody holds the instance, or the time is over."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until_seconds) as self._waiting:
                    await self._holds.wait_empty()
        finally:
            # Also where the process has ended meanwhile: what is over cannot be rescheduled.
            self._waiting = None
