"""A driver that blocks: bounded waits, one reading at a time."""

import asyncio
import threading

import pytest

from app.inventory.nvml_reader import NvmlReader
from app.inventory.nvml_snapshot import NvmlSnapshot

DEADLINE_SECONDS = 30.0


class BlockedDriver:
    """Answers once it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.is_asked = threading.Semaphore(0)
        self.calls: list[bool] = []

    def read(self, *, traffic: bool = False) -> NvmlSnapshot:
        self.calls.append(traffic)
        self.is_asked.release()
        assert self.may_answer.wait(DEADLINE_SECONDS)
        return NvmlSnapshot(driver_version=str(len(self.calls)))


async def test_a_driver_that_blocks_is_waited_for_only_so_long() -> None:
    driver = BlockedDriver()
    reader = NvmlReader(driver.read, deadline_seconds=0.01)
    for _ in range(2):
        assert (await reader.read()).problem == "the NVIDIA driver did not answer within 0.01 s"
    # The second did not begin another reading on top of the one that hangs.
    assert driver.calls == [False]
    driver.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join(DEADLINE_SECONDS)
    patient = await reader.read()
    assert patient.problem is None
    assert driver.calls == [False, False]


async def test_who_asks_at_the_same_time_shares_a_reading() -> None:
    driver = BlockedDriver()
    reader = NvmlReader(driver.read, deadline_seconds=DEADLINE_SECONDS)
    asked = [asyncio.create_task(reader.read()) for _ in range(3)]
    assert await asyncio.to_thread(driver.is_asked.acquire, timeout=DEADLINE_SECONDS)
    driver.may_answer.set()
    assert {snapshot.driver_version for snapshot in await asyncio.gather(*asked)} == {"1"}
    assert driver.calls == [False]


async def test_a_reading_with_traffic_is_another_one() -> None:
    driver = BlockedDriver()
    driver.may_answer.set()
    reader = NvmlReader(driver.read, deadline_seconds=DEADLINE_SECONDS)
    await asyncio.gather(reader.read(), reader.read(traffic=True))
    assert sorted(driver.calls) == [False, True]


async def test_a_mistake_in_reading_is_not_hidden() -> None:
    def broken(*, traffic: bool = False) -> NvmlSnapshot:
        raise AssertionError(f"traffic is {traffic}")

    with pytest.raises(AssertionError, match="traffic is False"):
        await NvmlReader(broken).read()
