"""Requests that wait for a profile: bounded, in the order they came, and sharing one load."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from app.errors import ProfileBusy, ProfileNotRunning, QueueFull, QueueTimedOut
from app.instances.lease import Lease
from app.profiles.profile import Serving


class Demand:
    """`lease` gives a hold on a profile that is ready, or raises ProfileNotRunning; `bring_up` makes it ready.

    `serving` tells how a profile bounds its queue; `queue_limit` bounds all queues together. `next_release` waits until
    a request of the profile has ended.
    """

    def __init__(
        self,
        *,
        lease: Callable[[str], Lease],
        bring_up: Callable[[str], Awaitable[object]],
        serving: Callable[[str], Serving],
        next_release: Callable[[str], Awaitable[None]],
        queue_limit: int,
    ) -> None:
        self._lease = lease
        self._bring_up = bring_up
        self._serving = serving
        self._next_release = next_release
        self._queue_limit = queue_limit
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._loads: dict[str, asyncio.Future[object]] = {}

    def close(self) -> None:
        """The service stops: who waits is told, and who comes is."""
        for load in self._loads.values():
            load.cancel()

    def queued(self, profile_id: str) -> int:
        """How many requests wait for the profile."""
        return self._waiting[profile_id]

    def has_turns(self, profile_id: str) -> bool:
        """Whether requests wait for their turn with a profile that is ready."""
        turns = self._turns.get(profile_id)
        return turns is not None and turns.locked()

    async def lease_when_ready(self, profile_id: str) -> Lease:
        """Wait for a hold, starting the profile where it does not run.

        Raises QueueFull and QueueTimedOut for the bounds, and what a start raises: LaunchRefused, InstanceFailed.
        """
        serving = self._serving(profile_id)
        self._demand_room(profile_id, serving)
        self._waiting[profile_id] += 1
        try:
            async with asyncio.timeout(serving.queue_timeout_seconds):
                return await self._wait(profile_id)
        except TimeoutError:
            raise QueueTimedOut(
                f"profile {profile_id!r} was not ready within serving.queue_timeout_seconds "
                f"({serving.queue_timeout_seconds:g} s)"
            ) from None
        finally:
            self._leave(profile_id)

    def _demand_room(self, profile_id: str, serving: Serving) -> None:
        if serving.queue_limit == 0:
            raise QueueFull(
                f"profile {profile_id!r} is not ready or serves as many requests as it may, and none may wait for it "
                f"(serving.queue_limit is 0): POST /profiles/{profile_id}/start starts it"
            )
        if self._waiting[profile_id] >= serving.queue_limit:
            raise QueueFull(
                f"as many requests wait for profile {profile_id!r} as may: serving.queue_limit is {serving.queue_limit}"
            )
        if self._waiting.total() >= self._queue_limit:
            raise QueueFull(f"{self._queue_limit} requests wait already: PACELINE_QUEUE_LIMIT bounds all queues")

    async def _wait(self, profile_id: str) -> Lease:
        while True:
            load = self._loads.get(profile_id)
            if load is None or load.done():
                load = self._loads[profile_id] = self._load(profile_id)
            await asyncio.wait({load})
            if load.cancelled():
                raise ProfileNotRunning("the service is stopping and starts nothing new", profile=profile_id)
            load.result()
            # It may have gone again in the same moment: then ask anew.
            async with self._turns.setdefault(profile_id, asyncio.Lock()):
                lease = await self._in_turn(profile_id)
            if lease is not None:
                return lease

    async def _in_turn(self, profile_id: str) -> Lease | None:
        """A hold as soon as the profile serves fewer requests than it may; None where it is not ready any more.

        Who comes later waits for the lock, which is given in the order of asking.
        """
        while True:
            try:
                return self._lease(profile_id)
            except ProfileBusy:
                await self._next_release(profile_id)
            except ProfileNotRunning:
                return None

    def _load(self, profile_id: str) -> asyncio.Future[object]:
        load = asyncio.ensure_future(self._bring_up(profile_id))
        # All who wait may have left in the moment in which it fails.
        load.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
        return load

    def _leave(self, profile_id: str) -> None:
        self._waiting[profile_id] -= 1
        if self._waiting[profile_id] > 0:
            return
        del self._waiting[profile_id]
        self._turns.pop(profile_id, None)
        load = self._loads.pop(profile_id, None)
        if load is not None and not load.done():
            # Nobody waits any more. What loads by now goes on loading; what waits for room does not.
            load.cancel()
