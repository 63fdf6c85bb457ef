"""Requests that wait for a profile: bounded, fair between callers, and sharing one load."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.errors import PacelineError, ProfileBusy, ProfileNotRunning, QueueFull, QueueTimedOut
from app.instances.lease import Lease
from app.instances.line import Line
from app.profiles.profile import Serving


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One request in a line; `granted` ends with its hold, or with why there is none."""

    caller: str | None
    granted: asyncio.Future[Lease]

    def refuse(self, why: Exception) -> None:
        """Tell it, unless it has left."""
        if not self.granted.done():
            self.granted.set_exception(why)

    def give_back(self) -> None:
        """It leaves with nothing: what it was granted in this very moment is free for others."""
        if self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None:
            self.granted.result().release()


@dataclass(slots=True, eq=False)
class _Queue:
    """Those who wait for one profile, and what works for them while there are any."""

    line: Line[_Place] = field(default_factory=Line)
    work: asyncio.Task[None] | None = None

    def begin(self, work: Callable[["_Queue"], Awaitable[None]]) -> None:
        """Have it go on, unless it does."""
        if self.work is None or self.work.done():
            self.work = asyncio.ensure_future(work(self))

    def end(self) -> None:
        """What loads by now goes on loading; what waits for room does not."""
        if self.work is not None:
            self.work.cancel()

    def refuse_all(self, why: Exception) -> None:
        """Tell everybody, and send them away."""
        while self.line:
            self.line.take().refuse(why)


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
        self._queues: dict[str, _Queue] = {}

    def close(self) -> None:
        """The service stops: who waits is told, and who comes is."""
        for profile_id in list(self._queues):
            self._send_away(profile_id, _stopping(profile_id))

    def withdraw(self, profile_id: str) -> int:
        """Somebody has stopped the profile: who waits for it is told; how many those are."""
        waiting = self.queued(profile_id)
        self._send_away(
            profile_id,
            ProfileNotRunning(f"profile {profile_id!r} was stopped while this request waited", profile=profile_id),
        )
        return waiting

    def queued(self, profile_id: str) -> int:
        """How many requests wait for the profile. Who comes while there are any waits, too."""
        queue = self._queues.get(profile_id)
        return 0 if queue is None else len(queue.line)

    async def lease_when_ready(self, profile_id: str, caller: str | None = None) -> Lease:
        """Wait for a hold, starting the profile where it does not run. `caller` is who shares the turns with others.

        Raises QueueFull and QueueTimedOut for the bounds, and what a start raises: LaunchRefused, InstanceFailed.
        """
        serving = self._serving(profile_id)
        if serving.queue_limit == 0:
            raise QueueFull(
                f"profile {profile_id!r} is not ready or serves as many requests as it may, and none may wait for it "
                f"(serving.queue_limit is 0): POST /profiles/{profile_id}/start starts it"
            )
        queue = self._queues.setdefault(profile_id, _Queue())
        place = _Place(caller, asyncio.get_running_loop().create_future())
        queue.line.join(caller, place)
        is_taken = False
        try:
            # It may be ready and the work behind: who came before comes first all the same.
            with contextlib.suppress(ProfileNotRunning):
                self._hand_out(profile_id, queue.line)
            self._demand_room(profile_id, queue.line, place, serving.queue_limit)
            queue.begin(lambda queue: self._work(profile_id, queue))
            async with asyncio.timeout(serving.queue_timeout_seconds):
                lease = await place.granted
            is_taken = True
            return lease
        except TimeoutError:
            raise QueueTimedOut(
                f"profile {profile_id!r} was not ready within serving.queue_timeout_seconds "
                f"({serving.queue_timeout_seconds:g} s)"
            ) from None
        finally:
            queue.line.leave(caller, place)
            if not is_taken:
                place.give_back()
            self._tidy(profile_id, queue)

    def _demand_room(self, profile_id: str, line: Line[_Place], newest: _Place, most: int) -> None:
        """Where the newest is one too many, whoever has most in the line gives up a place. Raises QueueFull if it is
        the newest's own.
        """
        if newest.granted.done():
            return
        if len(line) > most:
            full = f"as many requests wait for profile {profile_id!r} as may: serving.queue_limit is {most}"
        elif sum(len(queue.line) for queue in self._queues.values()) > self._queue_limit:
            full = f"{self._queue_limit} requests wait already: PACELINE_QUEUE_LIMIT bounds all queues"
        else:
            return
        given_up = line.surplus(newest.caller)
        if given_up is newest:
            raise QueueFull(full)
        line.leave(given_up.caller, given_up)
        given_up.refuse(QueueFull(f"{full}, and the newest of the key with most of them went for that of another key"))

    async def _work(self, profile_id: str, queue: _Queue) -> None:
        """One hold after another, until nobody waits. Whatever is in the way of that is told to all."""
        try:
            while queue.line:
                try:
                    self._hand_out(profile_id, queue.line)
                except ProfileBusy:
                    await self._next_release(profile_id)
                except ProfileNotRunning:
                    await self._bring_up(profile_id)
        except asyncio.CancelledError:
            queue.refuse_all(_stopping(profile_id))
            raise
        except Exception as failure:
            queue.refuse_all(failure)

    def _hand_out(self, profile_id: str, line: Line[_Place]) -> None:
        """Holds for those whose turn it is. Raises ProfileNotRunning, or ProfileBusy, where there is none for one."""
        while (place := line.first()) is not None:
            if place.granted.done():
                # It is leaving: its caller's turn is for the next.
                line.leave(place.caller, place)
                continue
            lease = self._lease(profile_id)
            line.take().granted.set_result(lease)

    def _send_away(self, profile_id: str, why: PacelineError) -> None:
        # Who comes from now on stands in another line.
        queue = self._queues.pop(profile_id, None)
        if queue is not None:
            queue.refuse_all(why)
            queue.end()

    def _tidy(self, profile_id: str, queue: _Queue) -> None:
        """The last who leaves ends what worked for them."""
        if not queue.line and self._queues.get(profile_id) is queue:
            del self._queues[profile_id]
            queue.end()


def _stopping(profile_id: str) -> ProfileNotRunning:
    return ProfileNotRunning("the service is stopping and starts nothing new", profile=profile_id)
