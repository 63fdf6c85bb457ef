"""What speculation gained each profile, as a gauge: from the database, which no scrape asks."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.errors import PacelineError
from app.metrics.awake import Awake
from app.proxy.observer import RequestFinished

_log = logging.getLogger(__name__)

DAYS: Final = 7
_PAUSE_LEAST_SECONDS: Final = 2.0
_PAUSE_MOST_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 60.0
# Readings take this share of a core at most, however large the database.
_SHARE: Final = 0.01
# What has just ended is committed by then.
_COMMITTED_SECONDS: Final = 1.0


class SpeedupsCollector(Collector):
    """Subscribes to RequestFinished. `read` gives the speed-up of each profile that can be compared, since a moment.

    `run` asks it in a thread: each five minutes, sooner where requests have ended and it answers quickly, and later
    where it takes long. While it fails the last answer stands. Shown are profiles that are `awake` and in
    `speculating`.
    """

    def __init__(
        self,
        read: Callable[[datetime], Mapping[str, float]],
        speculating: Callable[[], Collection[str]],
        awake: Awake,
        *,
        pause_least_seconds: float = _PAUSE_LEAST_SECONDS,
        committed_seconds: float = _COMMITTED_SECONDS,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._read = read
        self._speculating = speculating
        self._awake = awake
        self._pause_least_seconds = pause_least_seconds
        self._committed_seconds = committed_seconds
        self._retry_seconds = retry_seconds
        self._ratios: Mapping[str, float] = {}
        self._cost_seconds = 0.0
        self._failure: str | None = None
        self._has_more = asyncio.Event()

    def on_request_finished(self, _: RequestFinished) -> None:
        """There is more to read."""
        self._has_more.set()

    async def run(self) -> None:
        """Read again and again, until cancelled."""
        while True:
            self._has_more.clear()
            await asyncio.sleep(self._committed_seconds)
            await self.refresh()
            if self._failure is not None:
                await asyncio.sleep(self._retry_seconds)
                continue
            await asyncio.sleep(max(self._cost_seconds / _SHARE, self._pause_least_seconds))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_MOST_SECONDS):
                    await self._has_more.wait()

    async def refresh(self) -> None:
        """Read once. Never raises."""
        try:
            self._ratios = await asyncio.to_thread(self._measured, _since(datetime.now(UTC)))
        except Exception as failure:  # whatever it is: nobody else would ever try again
            self._note(failure)
        else:
            self._failure = None

    def _note(self, failure: Exception) -> None:
        said = f"{type(failure).__name__}: {failure}"
        # Once, and where it was not foreseen with its origin.
        if said != self._failure:
            trace = None if isinstance(failure, PacelineError) else failure
            _log.warning("speed-ups cannot be read, which is tried again: %s", failure, exc_info=trace)
        self._failure = said

    def _measured(self, since: datetime) -> Mapping[str, float]:
        began = time.thread_time()
        try:
            return self._read(since)
        finally:
            self._cost_seconds = time.thread_time() - began

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        family = GaugeMetricFamily(
            "paceline_speculation_speedup_ratio",
            f"Generation tokens/s with speculation / without, category for category, of the last {DAYS} days.",
            labels=("profile",),
        )
        shown = {*self._awake.profiles()}.intersection(self._speculating())
        for profile_id, ratio in sorted(self._ratios.items()):
            if profile_id in shown:
                family.add_metric((profile_id,), ratio)
        yield family


def _since(now: datetime) -> datetime:
    """Whole hours: these are summed up."""
    return (now - timedelta(days=DAYS)).replace(minute=0, second=0, microsecond=0)
