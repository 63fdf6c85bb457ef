"""The requests that one instance serves at the moment, and what they tell of its health."""

import asyncio
from collections.abc import Callable

from app.errors import ProfileBusy
from app.instances.lease import LaunchContext, Lease, Upstream


class Holds:
    """Counts leases. `clock` is monotonic, in seconds; `on_empty` is called whenever the last lease is given back.

    `failures_in_a_row` counts requests that the engine failed since the last one that it answered.
    """

    def __init__(self, clock: Callable[[], float], on_empty: Callable[[], None]) -> None:
        self._clock = clock
        self._on_empty = on_empty
        self._last_heard: dict[Lease, float] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._empty_since = clock()
        self.count = 0
        self._next_sign: asyncio.Future[None] | None = None
        self._next_release: asyncio.Future[None] | None = None
        self.failures_in_a_row = 0

    def take(self, upstream: Upstream, context: LaunchContext, most: int | None = None) -> Lease:
        """A new hold. Raises ProfileBusy where there are `most` already."""
        if most is not None and self.count >= most:
            raise ProfileBusy(f"profile {context.profile_id!r} serves as many requests as it may at once: {most}")
        lease = Lease(upstream, context, self)
        self._last_heard[lease] = self._clock()
        self.count += 1
        if self._emptied.is_set():
            self._emptied.clear()
        return lease

    def answered(self, lease: Lease) -> None:
        """The engine has begun to answer one of them."""
        self.failures_in_a_row = 0
        self.came_on(lease)

    def came_on(self, lease: Lease) -> None:
        """The answer to one of them comes on."""
        self._last_heard[lease] = self._clock()
        if self._next_sign is not None:
            self._next_sign.set_result(None)
            self._next_sign = None

    def released(self, lease: Lease, *, has_failed: bool) -> None:
        """One of them is given back."""
        self._last_heard.pop(lease, None)
        if has_failed:
            self.failures_in_a_row += 1
        self.count -= 1
        if self._next_release is not None:
            self._next_release.set_result(None)
            self._next_release = None
        if self.count == 0:
            self._empty_since = self._clock()
            self._emptied.set()
            self._on_empty()

    @property
    def idle_seconds(self) -> float:
        """How long nobody holds it; 0 while somebody does."""
        return 0.0 if self.count else self._clock() - self._empty_since

    @property
    def longest_silence_seconds(self) -> float:
        """How long the engine has been silent on one of them, before its answer or within; 0 where there is none."""
        now = self._clock()
        return now - min(self._last_heard.values(), default=now)

    def begin_idle(self) -> None:
        """Idle time counts from now on: it has become ready."""
        self._empty_since = self._clock()

    async def wait_empty(self) -> None:
        """Until nobody holds it."""
        await self._emptied.wait()

    async def next_release(self) -> None:
        """Until one of them is given back; at once where there is none."""
        if self.count == 0:
            return
        if self._next_release is None:
            self._next_release = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next_release)

    async def next_sign(self) -> None:
        """Until the answer to one of them begins or comes on."""
        if self._next_sign is None:
            self._next_sign = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next_sign)
