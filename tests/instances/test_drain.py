"""The time of running requests, also where it is asked for again at the wrong moment."""

import asyncio

from app.instances.drain import Drain
from app.instances.holds import Holds
from app.instances.lease import LaunchContext, Upstream

CONTEXT = LaunchContext("small", 1, "b11434", "0123456789abcdef", "cpu", "none")


def held() -> Holds:
    holds = Holds(asyncio.get_running_loop().time, lambda: None)
    holds.take(Upstream(1, "key", port=1), CONTEXT)
    return holds


async def begun(drain: Drain) -> asyncio.Task[None]:
    task = asyncio.create_task(drain.wait())
    await asyncio.sleep(0)
    return task


async def test_it_ends_with_the_last_request() -> None:
    holds = Holds(asyncio.get_running_loop().time, lambda: None)
    lease = holds.take(Upstream(1, "key", port=1), CONTEXT)
    drain = Drain(holds)
    drain.allow(60)
    task = await begun(drain)
    lease.release()
    async with asyncio.timeout(5):
        await task


async def test_asking_again_shortens_it_and_never_lengthens_it() -> None:
    drain = Drain(held())
    drain.allow(60)
    task = await begun(drain)
    drain.allow(0.01)
    drain.allow(60)
    async with asyncio.timeout(5):
        await task


async def test_asking_again_after_it_was_cut_short_is_no_error() -> None:
    """The process may end before its requests do."""
    drain = Drain(held())
    drain.allow(60)
    task = await begun(drain)
    task.cancel()
    await asyncio.wait({task})
    drain.allow(1)


async def test_asking_again_in_the_very_moment_in_which_its_time_is_over_is_no_error() -> None:
    drain = Drain(held())
    drain.allow(0)
    # The time is over in the first round of the loop; whoever drains hears of it in a later one.
    task = asyncio.create_task(drain.wait())
    while not task.done():
        drain.allow(1)
        await asyncio.sleep(0)
    assert task.exception() is None
