"""The requests that one instance serves at the moment, and what they tell of its health."""

import asyncio
from collections.abc import Callable

from app.instances.lease import LaunchContext, Lease, Upstream


class Holds:
    """Counts leases. `clock` is monotonic, in seconds; `on_empty` is called whenever the last lease is given back.

    `failures_in_a_row` counts requests that the engine failed since the last one that it answered.
    """

    def __init__(self, clock: Callable[[], float], on_empty: Callable[[], None]) -> None:
        self._clock = clock
        self._on_empty = on_empty
        self._unanswered: dict[Lease, float] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._empty_since = clock()
        self.count = 0
        self._next_answer: asyncio.Future[None] | None = None
        self.failures_in_a_row = 0

    def take(self, upstream: Upstream, context: LaunchContext) -> Lease:
        """A new hold."""
        lease = Lease(upstream, context, self)
        self._unanswered[lease] = self._clock()
        self.count += 1
        if self._emptied.is_set():
            self._emptied.clear()
        return lease

    def answered(self, lease: Lease) -> None:
        """The engine has begun to answer one of them."""
        if self._unanswered.pop(lease, None) is not None:
            self.failures_in_a_row = 0
            if self._next_answer is not None:
                self._next_answer.set_result(None)
                self._next_answer = None

    def released(self, lease: Lease, *, has_failed: bool) -> None:
        """One of them is given back."""
        self._unanswered.pop(lease, None)
        if has_failed:
            self.failures_in_a_row += 1
        self.count -= 1
        if self.count == 0:
            self._empty_since = self._clock()
            self._emptied.set()
            self._on_empty()

    @property
    def idle_seconds(self) -> float:
        """How long nobody holds it; 0 while somebody does."""
        return 0.0 if self.count else self._clock() - self._empty_since

    @property
    def longest_unanswered_seconds(self) -> float:
        """How long the oldest request waits that the engine has not begun to answer; 0 where there is none."""
        oldest = next(iter(self._unanswered.values()), None)
        return 0.0 if oldest is None else self._clock() - oldest

    def begin_idle(self) -> None:
        """Idle time counts from now on: it has become ready."""
        self._empty_since = self._clock()

    async def wait_empty(self) -> None:
        """Until nobody holds it."""
        await self._emptied.wait()

    async def next_answer(self) -> None:
        """Until the engine begins to answer one of them."""
        if self._next_answer is None:
            self._next_answer = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next_answer)
