"""Work that is done every hour goes on whatever it meets, and what is in its way is said."""

import asyncio
import logging

import pytest

from app.errors import DatabaseUnavailable
from app.telemetry.hourly import Hourly


class Work:
    """Raises what it is given, one after the other, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.told: list[list[str]] = []
        self.is_done = asyncio.Event()
        self.job = Hourly("counting sheep", self._work, retry_seconds=0)

    async def _work(self) -> None:
        self.told.append([f"{found.rule}: {found.message}" for found in self.job.findings()])
        if self._failures:
            raise self._failures.pop(0)
        self.is_done.set()

    async def run(self) -> None:
        """Until it succeeded."""
        task = asyncio.create_task(self.job.run())
        async with asyncio.timeout(10):
            await self.is_done.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_whatever_is_raised_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(DatabaseUnavailable("locked"), OverflowError("infinite"), OverflowError("infinite"))
    await work.run()
    infinite = ["upkeep-failed: counting sheep failed: OverflowError: infinite"]
    assert work.told == [[], ["upkeep-failed: counting sheep failed: locked"], infinite, infinite]
    assert not work.job.findings()
    # A trace where it was not foreseen, and not for each try.
    assert [record.exc_info is not None for record in caplog.records] == [False, True, False]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


async def test_to_be_cancelled_ends_it() -> None:
    has_begun = asyncio.Event()

    async def work() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    job = Hourly("counting sheep", work)
    task = asyncio.create_task(job.run())
    async with asyncio.timeout(10):
        await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not job.findings()
