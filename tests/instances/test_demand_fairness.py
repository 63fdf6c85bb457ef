"""Requests of several callers that wait for a profile: whose turn it is, who gets a place, and that no hold is lost."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances.awaited_engine import Engine

from app.errors import QueueFull
from app.instances.lease import Lease
from app.profiles.profile import Serving


async def served_in_order(engine: Engine, tasks: Mapping[asyncio.Task[Lease], str]) -> str:
    """Who gets the one hold that there is, one after another, each giving it back at once."""
    order = []
    waiting = set(tasks)
    async with asyncio.timeout(5):
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            (task,) = done
            order.append(tasks[task])
            (await task).release()
    return "".join(order)


async def test_callers_take_turns_and_each_in_the_order_of_its_own() -> None:
    engine = Engine(limits=Serving(max_concurrency=1))
    busy = (await engine.waiting(1))[0]
    engine.loaded.set_result(None)
    async with asyncio.timeout(5):
        lease = await busy
    tasks = {}
    for caller, count in (("a", 4), ("b", 1), ("c", 2)):
        for number, task in enumerate(await engine.waiting(count, caller=caller)):
            tasks[task] = f"{caller}{number} "
    lease.release()
    assert await served_in_order(engine, tasks) == "a0 b0 c0 a1 c1 a2 a3 "


async def test_the_line_before_a_load_is_fair_too() -> None:
    engine = Engine(limits=Serving(max_concurrency=1))
    many = await engine.waiting(5, caller="many")
    one = await engine.waiting(1, caller="one")
    engine.loaded.set_result(None)
    names = {**dict.fromkeys(many, "m"), **dict.fromkeys(one, "1")}
    assert await served_in_order(engine, names) == "m1mmmm"
    assert engine.loads == 1


async def test_a_line_that_one_caller_fills_has_room_for_another() -> None:
    engine = Engine(Serving(queue_limit=3))
    many = await engine.waiting(3, caller="many")
    (one,) = await engine.waiting(1, caller="one")
    with pytest.raises(QueueFull, match=r"serving\.queue_limit is 3, and the newest of the key with most of them"):
        await many.pop()
    assert engine.demand.queued("small") == 3
    # Now it is as much the other's: two and one, and a second one would only change who waits.
    with pytest.raises(QueueFull, match=r"serving\.queue_limit is 3$"):
        await engine.demand.lease_when_ready("small", "one")
    with pytest.raises(QueueFull, match=r"serving\.queue_limit is 3$"):
        await engine.demand.lease_when_ready("small", "many")
    engine.loaded.set_result(None)
    for lease in await asyncio.gather(*many, one):
        lease.release()
    assert (engine.holds.count, engine.demand.queued("small")) == (0, 0)


async def test_the_bound_of_all_queues_is_shared_alike() -> None:
    engine = Engine(queue_limit=2)
    first, second = await engine.waiting(2, caller="many")
    (one,) = await engine.waiting(1, caller="one")
    with pytest.raises(QueueFull, match="PACELINE_QUEUE_LIMIT bounds all queues, and the newest"):
        await second
    # Of another profile nobody waits: there is no place that could be given up.
    with pytest.raises(QueueFull, match=r"PACELINE_QUEUE_LIMIT bounds all queues$"):
        await engine.demand.lease_when_ready("other", "third")
    engine.loaded.set_result(None)
    for lease in await asyncio.gather(first, one):
        lease.release()
    assert engine.demand.queued("other") == 0


callers = st.sampled_from(["a", "b", "c", None])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), callers),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 30)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, most=st.integers(1, 3), bound=st.integers(1, 6))
def test_whatever_happens_no_hold_is_lost_and_nobody_is_forgotten(
    steps: list[tuple[str, Any]], most: int, bound: int
) -> None:
    """Requests come, leave and end in any order, and the engine goes and comes: in the end all are answered."""

    async def play() -> None:
        engine = Engine(Serving(max_concurrency=most, queue_limit=bound), queue_limit=100)
        engine.loaded.set_result(None)
        tasks: list[asyncio.Task[Lease]] = []
        for step, which in steps:
            if step == "come":
                tasks.append(asyncio.create_task(engine.demand.lease_when_ready("small", which)))
            elif step == "leave" and tasks:
                tasks[which % len(tasks)].cancel()
            elif step == "crash":
                engine.is_ready = False
            elif held := [task for task in tasks if is_held(task)]:
                task = held[which % len(held)]
                tasks.remove(task)
                task.result().release()
            if isinstance(which, int) and which % 2:
                await asyncio.sleep(0)
            assert engine.holds.count <= most
            assert engine.demand.queued("small") <= bound
        async with asyncio.timeout(5):
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.remove(task)
                    if is_held(task):
                        task.result().release()
                    elif not task.cancelled():
                        assert isinstance(task.exception(), QueueFull)
        assert (engine.holds.count, engine.demand.queued("small")) == (0, 0)

    asyncio.run(play())


def is_held(task: asyncio.Task[Lease]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
