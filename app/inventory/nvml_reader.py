"""Reading the driver without waiting for it for ever."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from app.inventory.nvml_snapshot import NvmlSnapshot

_DEADLINE_SECONDS = 5.0


class BlockingRead(Protocol):
    """`Nvml.read`, or what stands in for it."""

    def __call__(self, *, traffic: bool = False) -> NvmlSnapshot:
        """What the driver says now. Never raises, may block."""


class NvmlReader:
    """Runs a blocking read in a thread. Who asks while one is under way gets that one.

    `deadline_seconds` bounds the wait, not the read: as long as a read has not come back no other is begun.
    """

    def __init__(self, read: BlockingRead, *, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
        self._read = read
        self._deadline_seconds = deadline_seconds
        self._under_way: dict[bool, Future[NvmlSnapshot]] = {}

    async def read(self, *, traffic: bool = False) -> NvmlSnapshot:
        """What the driver says now, with PCIe throughput where `traffic`; a snapshot with a `problem` when too late."""
        reading = self._under_way.get(traffic)
        if reading is None or reading.done():
            reading = self._under_way[traffic] = _in_thread(lambda: self._read(traffic=traffic))
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(reading)), self._deadline_seconds)
        except TimeoutError:
            return NvmlSnapshot(problem=f"the NVIDIA driver did not answer within {self._deadline_seconds:g} s")


def _in_thread(work: Callable[[], NvmlSnapshot]) -> "Future[NvmlSnapshot]":
    """A daemon thread: one that never comes back must not keep the service from ending."""
    future: Future[NvmlSnapshot] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    return future
