"""An instance that is ready when a test says so, and those who wait for it."""

import asyncio
from dataclasses import dataclass, field

from app.errors import ProfileNotRunning
from app.instances.demand import Demand
from app.instances.holds import Holds
from app.instances.lease import LaunchContext, Lease, Upstream
from app.profiles.profile import Serving

CONTEXT = LaunchContext("small", 1, "b11434", "0123456789abcdef", "cpu", "none")


@dataclass
class Engine:
    """An instance that is ready when the test says so."""

    limits: Serving = field(default_factory=Serving)
    queue_limit: int = 10
    loads: int = 0
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.holds = Holds(asyncio.get_running_loop().time, lambda: None)
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_begun, self.was_given_up = asyncio.Event(), asyncio.Event()
        self.demand = Demand(
            lease=self.lease,
            bring_up=self.bring_up,
            serving=lambda _: self.limits,
            next_release=lambda _: self.holds.next_release(),
            queue_limit=self.queue_limit,
        )

    def lease(self, profile_id: str) -> Lease:
        if not self.is_ready:
            raise ProfileNotRunning(f"{profile_id} does not run")
        return self.holds.take(Upstream(1, "key", port=1), CONTEXT, self.limits.max_concurrency)

    async def bring_up(self, profile_id: str) -> None:
        self.loads += 1
        self.has_begun.set()
        try:
            await asyncio.shield(self.loaded)
        except asyncio.CancelledError:
            self.was_given_up.set()
            raise
        self.is_ready = True

    async def waiting(
        self, count: int, profile_id: str = "small", caller: str | None = None
    ) -> list[asyncio.Task[Lease]]:
        tasks = [asyncio.create_task(self.demand.lease_when_ready(profile_id, caller)) for _ in range(count)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await self.has_begun.wait()
        return tasks
