"""Requests that wait for a profile, without any profile: what is shared, what is bounded, and what ends the waiting."""

import asyncio
from dataclasses import dataclass

import pytest
from instances.awaited_engine import Engine

from app.errors import InstanceFailed, ProfileNotRunning, QueueFull, QueueTimedOut
from app.instances.lease import Lease
from app.profiles.profile import Serving


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
            assert engine.demand.queued("small") == 5 - following
            assert engine.holds.count == 2
            served.pop(0).release()
            served.append(await tasks[following])
    assert (engine.loads, engine.demand.queued("small")) == (1, 0)


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


async def test_a_profile_that_somebody_stops_tells_those_who_wait_and_serves_who_comes_later() -> None:
    engine = Engine()
    tasks = await engine.waiting(2)
    assert (engine.demand.withdraw("small"), engine.demand.withdraw("other")) == (2, 0)
    later = asyncio.create_task(engine.demand.lease_when_ready("small"))
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert {str(each) for each in told} == {"profile 'small' was stopped while this request waited"}
    engine.loaded.set_result(None)
    async with asyncio.timeout(5):
        (await later).release()


async def test_who_comes_when_it_is_ready_does_not_wait_for_the_load_that_others_wait_for() -> None:
    engine = Engine()
    tasks = await engine.waiting(2, caller="early")
    # It came up by another way, and the load has not heard of it.
    engine.is_ready = True
    async with asyncio.timeout(5):
        (await engine.demand.lease_when_ready("small", "late")).release()
        for lease in await asyncio.gather(*tasks):
            lease.release()
    assert (engine.holds.count, engine.demand.queued("small")) == (0, 0)


async def test_a_hold_that_comes_as_its_request_leaves_is_given_back() -> None:
    @dataclass
    class Interrupting(Engine):
        """Has somebody leave after the hold was made and before it arrives."""

        leaving: asyncio.Task[Lease] | None = None

        def lease(self, profile_id: str) -> Lease:
            lease = super().lease(profile_id)
            if self.leaving is not None:
                asyncio.get_running_loop().call_soon(self.leaving.cancel)
            return lease

    engine = Interrupting()
    (engine.leaving,) = await engine.waiting(1)
    engine.loaded.set_result(None)
    await asyncio.wait({engine.leaving})
    assert engine.leaving.cancelled()
    assert (engine.loads, engine.holds.count, engine.demand.queued("small")) == (1, 0, 0)
