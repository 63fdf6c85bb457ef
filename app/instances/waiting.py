"""Waiting for one of several things, with nothing left running afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any


@contextlib.asynccontextmanager
async def beside(*waited: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Run these beside the body; what has not ended with it is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waited]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def first_of(waited: Awaitable[object], lasting: asyncio.Task[Any]) -> None:
    """Wait for either; `lasting` goes on afterwards."""
    async with beside(waited) as (task,):
        await asyncio.wait({task, lasting}, return_when=asyncio.FIRST_COMPLETED)
