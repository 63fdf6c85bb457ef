"""Requests that wait for a profile, without any profile: what is shared, what is bounded, and what ends the waiting."""

import asyncio
from dataclasses import dataclass, field

import pytest

from app.errors import InstanceFailed, ProfileNotRunning, QueueFull, QueueTimedOut
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

    async def waiting(self, count: int, profile_id: str = "small") -> list[asyncio.Task[Lease]]:
        tasks = [asyncio.create_task(self.demand.lease_when_ready(profile_id)) for _ in range(count)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await self.has_begun.wait()
        return tasks


async def test_all_who_wait_share_one_load_and_each_gets_a_hold() -> None:
    engine = Engine()
    tasks = await engine.waiting(5)
    engine.loaded.set_result(None)
    leases = await asyncio.gather(*tasks)
    assert (engine.loads, engine.holds.count, engine.demand.queued("small")) == (1, 5, 0)
    for lease in leases:
        lease.release()
    assert engine.holds.count == 0


async def test_a_failure_is_told_to_all_and_the_next_request_tries_anew() -> None:
    engine = Engine()
    tasks = await engine.waiting(3)
    engine.loaded.set_exception(InstanceFailed("it failed", reason="bad-model"))
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in told] == ["it failed"] * 3
    with pytest.raises(InstanceFailed):
        await engine.demand.lease_when_ready("small")
    assert (engine.loads, engine.demand.queued("small")) == (2, 0)


async def test_the_load_goes_on_while_somebody_waits_and_is_given_up_when_nobody_does() -> None:
    engine = Engine()
    first, second = await engine.waiting(2)
    first.cancel()
    await asyncio.wait({first})
    assert (engine.demand.queued("small"), engine.was_given_up.is_set()) == (1, False)
    second.cancel()
    async with asyncio.timeout(5):
        await engine.was_given_up.wait()
    assert engine.demand.queued("small") == 0
    # Who comes later does not get the load that was given up.
    (third,) = await engine.waiting(1)
    engine.loaded.set_result(None)
    (await third).release()
    assert engine.loads == 2


async def test_a_load_that_fails_as_the_last_leaves_is_nobodys_surprise() -> None:
    surprises: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
    engine = Engine()
    (only,) = await engine.waiting(1)
    engine.loaded.set_exception(InstanceFailed("it failed", reason="bad-model"))
    only.cancel()
    await asyncio.wait({only})
    del engine, only
    await asyncio.sleep(0)
    assert surprises == []


async def test_each_profile_has_a_bound_and_all_together_have_one() -> None:
    engine = Engine(Serving(queue_limit=2), queue_limit=3)
    waiting = await engine.waiting(2)
    with pytest.raises(QueueFull, match=r"serving\.queue_limit is 2"):
        await engine.demand.lease_when_ready("small")
    waiting += await engine.waiting(1, "other")
    with pytest.raises(QueueFull, match="PACELINE_QUEUE_LIMIT"):
        await engine.demand.lease_when_ready("other")
    engine.loaded.set_result(None)
    for lease in await asyncio.gather(*waiting):
        lease.release()
    (await engine.demand.lease_when_ready("small")).release()


async def test_a_wait_has_an_end() -> None:
    engine = Engine(Serving(queue_timeout_seconds=0.01))
    with pytest.raises(QueueTimedOut, match=r"0\.01 s"):
        await engine.demand.lease_when_ready("small")
    assert engine.demand.queued("small") == 0


async def test_at_the_end_of_the_service_who_waits_is_told() -> None:
    engine = Engine()
    tasks = await engine.waiting(2)
    engine.demand.close()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in told] == [ProfileNotRunning] * 2
    assert engine.demand.queued("small") == 0


async def test_more_than_may_be_served_at_once_wait_in_the_order_they_came() -> None:
    engine = Engine(limits=Serving(max_concurrency=2))
    tasks = await engine.waiting(5)
    engine.loaded.set_result(None)
    async with asyncio.timeout(5):
        served = [await tasks[0], await tasks[1]]
        for following in range(2, 5):
            await asyncio.sleep(0)
            assert [task.done() for task in tasks[following:]] == [False] * (5 - following)
            assert engine.demand.has_turns("small")
            assert engine.holds.count == 2
            served.pop(0).release()
            served.append(await tasks[following])
    assert (engine.loads, engine.demand.queued("small"), engine.demand.has_turns("small")) == (1, 0, False)


async def test_who_waits_for_a_turn_and_leaves_makes_way() -> None:
    engine = Engine(limits=Serving(max_concurrency=1))
    first, second, third = await engine.waiting(3)
    engine.loaded.set_result(None)
    async with asyncio.timeout(5):
        lease = await first
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        lease.release()
        (await third).release()
    assert (engine.holds.count, engine.demand.queued("small")) == (0, 0)


async def test_an_engine_that_goes_while_requests_wait_for_a_turn_is_brought_up_again() -> None:
    engine = Engine(limits=Serving(max_concurrency=1))
    first, second = await engine.waiting(2)
    engine.loaded.set_result(None)
    async with asyncio.timeout(5):
        lease = await first
        await asyncio.sleep(0)
        engine.is_ready = False
        lease.release()
        (await second).release()
    assert engine.loads == 2
