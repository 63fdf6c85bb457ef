"""Acceptance windows: what the engines themselves counted of their drafts, from one reading to the next."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import httpx

from app.events import Event
from app.identifiers import id_text
from app.instances.lease import LaunchContext
from app.instances.prepared import Prepared
from app.instances.state import InstanceState, InstanceStateChanged
from app.llama_server.counters import UNUSED, EngineCounters, counted_between

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 15.0
# Asked each second, an engine would not notice that a client who does not stream has left.
_TOO_SHORT_PAUSE_SECONDS = 1.0
# Who scrapes does so each minute or so: one that was not seen for that long is gone.
_SCRAPER_SECONDS = 600.0
_LAST_READING_SECONDS = 1.0
# Requests that are cut off are counted once the engine has noticed that their connections are closed.
_CUT_OFF_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class AcceptanceWindowClosed(Event):
    """An engine has drafted since the reading before; `counts` are the differences. Windows of a life do not overlap.

    Times are milliseconds since 1970. A request belongs to the window in which it ended.
    """

    instance_id: int
    context: LaunchContext
    started_at_milliseconds: int
    ended_at_milliseconds: int
    counts: EngineCounters


@dataclass(slots=True)
class _Reading:
    """What was last read of a life. One at a time: an older answer after a newer would look like a new beginning."""

    at_milliseconds: int
    counters: EngineCounters = UNUSED
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class AcceptanceWindows:
    """Reads the counters of every engine that may draft each `pause_seconds`, and once more before its end.

    `ready` gives the lives that serve. To read begins an engine's averages anew, which would disturb whoever scrapes it
    through the relay: for ten minutes after a scrape (`scraped` tells of it) that profile's engine is not read. Nothing
    is lost: the next window is longer.
    """

    def __init__(
        self,
        ready: Callable[[], Iterable[Prepared]],
        publish: Callable[[Event], None],
        *,
        pause_seconds: float = PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if pause_seconds <= _TOO_SHORT_PAUSE_SECONDS:
            raise ValueError(f"an engine must not be read each {pause_seconds:g} s: it would miss clients that leave")
        self._ready = ready
        self._publish = publish
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._readings: dict[int, _Reading] = {}
        self._scraped_at: dict[str, float] = {}

    async def run(self) -> None:
        """Read again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            await self.look()

    async def look(self) -> None:
        """Read every engine that serves, may draft and is scraped by nobody else."""
        lives = [
            life for life in self._ready() if life.upstream.may_draft and not self._is_scraped(life.context.profile_id)
        ]
        # All at once: one that is slow to answer holds up no other.
        await asyncio.gather(*(self._read(life) for life in lives if not self._reading(life).lock.locked()))

    async def last_look(self, life: Prepared, is_cut_off: bool) -> None:
        """Read an engine before it is told to end, for a second at most; `is_cut_off` where requests still ran.

        Never raises: where the engine does not answer, what it counted since the last reading is not known.
        """
        if not life.upstream.may_draft:
            return
        try:
            async with asyncio.timeout(_LAST_READING_SECONDS):
                if is_cut_off:
                    await asyncio.sleep(_CUT_OFF_SECONDS)
                await self._read(life)
        except TimeoutError:
            _log.info("instance %s did not tell its last counts in time", id_text(life.upstream.instance_id))

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """A life that becomes ready begins its first window; one that is over has none."""
        if event.state is InstanceState.READY:
            self._readings[event.instance_id] = _Reading(self._now())
        elif event.state.is_terminal:
            self._readings.pop(event.instance_id, None)

    def scraped(self, profile_id: str) -> None:
        """Somebody else has read the engine of this profile."""
        self._scraped_at[profile_id] = self._clock()

    def paused(self) -> Mapping[str, bool]:
        """By profile whether its engine is not read for now; of those that serve and may draft. Any thread may ask."""
        drafting = [life.context.profile_id for life in self._ready() if life.upstream.may_draft]
        return {profile_id: self._is_scraped(profile_id) for profile_id in drafting}

    def _is_scraped(self, profile_id: str) -> bool:
        return self._clock() - self._scraped_at.get(profile_id, -_SCRAPER_SECONDS) < _SCRAPER_SECONDS

    def _reading(self, life: Prepared) -> _Reading:
        return self._readings.setdefault(life.upstream.instance_id, _Reading(self._now()))

    async def _read(self, life: Prepared) -> None:
        reading = self._reading(life)
        async with reading.lock:
            try:
                async with life.upstream.client() as engine:
                    counters = await engine.counters()
            except (httpx.HTTPError, ValueError) as failure:
                _log.debug("instance %s does not tell its counts: %s", id_text(life.upstream.instance_id), failure)
                return
            if counters is not None:
                self._close(life, reading, counters)

    def _close(self, life: Prepared, reading: _Reading, counters: EngineCounters) -> None:
        counts = counted_between(reading.counters, counters)
        started_at, reading.at_milliseconds = reading.at_milliseconds, self._now()
        reading.counters = counters
        if counts.has_drafts:
            self._publish(
                AcceptanceWindowClosed(
                    life.upstream.instance_id, life.context, started_at, reading.at_milliseconds, counts
                )
            )

    def _now(self) -> int:
        return round(self._wall_clock() * 1000)
