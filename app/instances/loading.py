"""How a load comes on, and whether it still does.

The engine tells no progress over HTTP. Three signs are there from outside: its lines, what it reads, and its memory.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.events import Event
from app.instances.evidence import ProcessSample
from app.instances.facts import InstanceLoadProgressed
from app.launch.report import Launch, predicted_memory
from app.llama_server.load_stages import STAGES, LoadStage, load_stage_of

# An idle process allocates and reads a little now and then: that is no progress.
_NOISE_BYTES: Final = 1 << 20
_FIRST_POLL_SECONDS: Final = 0.25
_LONGEST_POLL_SECONDS: Final = 1.0
_TOLD_SECONDS: Final = 0.25
_TOLD_FRACTION: Final = 0.02


@dataclass(frozen=True, slots=True)
class ExpectedBytes:
    """What a load has to read: `draft` only of a draft that is a file of its own; 0 where nothing is known."""

    target: int = 0
    draft: int = 0
    projector: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.target + self.draft + self.projector

    @classmethod
    def of(cls, launch: Launch) -> "ExpectedBytes":
        """From the plan of a launch, over all devices and the host."""
        places = predicted_memory(launch.report).values()
        target, draft, projector = (
            sum(int(terms.get(term, 0)) for terms in places) for term in ("weights", "draft_weights", "projector")
        )
        if launch.profile.speculation.draft is None:
            # The heads of an MTP model are read with the target.
            return cls(target + draft, 0, projector)
        return cls(target, draft, projector)


@dataclass(slots=True)
class _Measure:
    """One figure of the process that grows while it loads."""

    latest: int | None = None
    at_stage_start: int | None = None
    at_progress: int | None = None
    grown_bytes: int = 0

    def see(self, value: int | None) -> bool:
        """Take a new value; whether it is progress."""
        if value is None:
            return False
        self.latest = value
        self.at_stage_start = value if self.at_stage_start is None else self.at_stage_start
        self.grown_bytes = max(self.grown_bytes, value - self.at_stage_start)
        if self.at_progress is not None and value <= self.at_progress + _NOISE_BYTES:
            return False
        is_first, self.at_progress = self.at_progress is None, value
        return not is_first

    def begin_stage(self) -> None:
        self.at_stage_start, self.grown_bytes = self.latest, 0


@dataclass(slots=True)
class LoadWatch:
    """Says how far one load is, from the lines of the engine and looks at its process. Pure: times are given.

    `fraction` estimates the share of the bytes that are read, from 0 to 1, and never falls; it is None before the
    engine begins to read, and where it is not known how much there is.
    """

    expected: ExpectedBytes
    began_at: float
    stage: LoadStage = field(default=LoadStage.STARTING, init=False)
    fraction: float | None = field(default=None, init=False)
    last_progress_at: float = field(init=False)
    _resident: _Measure = field(default_factory=_Measure, init=False)
    _read: _Measure = field(default_factory=_Measure, init=False)

    def __post_init__(self) -> None:
        self.last_progress_at = self.began_at

    def line(self, text: str, at_seconds: float) -> None:
        """The engine printed a line."""
        self.last_progress_at = max(self.last_progress_at, at_seconds)
        for measure in (self._resident, self._read):
            # Memory that was given back may grow again: with what it says now, a new count begins.
            measure.at_progress = measure.latest
        found = load_stage_of(text)
        if found is not None and STAGES.index(found) > STAGES.index(self.stage):
            self.stage = found
            self._resident.begin_stage()
            self._read.begin_stage()
        self._estimate()

    def sample(self, sample: ProcessSample) -> None:
        """Its process was looked at."""
        signs = [self._resident.see(sample.resident_bytes), self._read.see(sample.read_bytes)]
        if any(signs):
            self.last_progress_at = max(self.last_progress_at, sample.at_seconds)
        self._estimate()

    def stalled(self, now_seconds: float, load_stall_seconds: float) -> bool:
        """Whether it gave no sign for that long. Computing alone is none: a loop that does not end computes too."""
        return now_seconds - self.last_progress_at >= load_stall_seconds

    def stalled_for(self, seconds: float) -> str:
        """A sentence on a load that has stalled for so long."""
        done = "" if self.fraction is None else f", about {self.fraction:.0%} read"
        return (
            f"It has not come on for {seconds:g} s while loading (stage {self.stage.value}{done}): no line, nothing "
            "read, no memory taken. A slow disk may need a higher PACELINE_LOAD_STALL_SECONDS."
        )

    def _estimate(self) -> None:
        if self.stage is LoadStage.LOADED:
            self.fraction = 1.0
        if not self.expected.total or self.stage is LoadStage.STARTING:
            return
        before, in_stage = self._shares()
        grown_bytes = max(self._resident.grown_bytes, self._read.grown_bytes)
        estimate = (before + min(grown_bytes, in_stage)) / self.expected.total
        self.fraction = max(self.fraction or 0.0, estimate)

    def _shares(self) -> tuple[int, int]:
        """The bytes that were read before this stage, and those that are read in it.

        A projector is read last, before the slots are made, and no line says so.
        """
        expected = self.expected
        match self.stage:
            case LoadStage.STARTING | LoadStage.READING_MODEL:
                return 0, expected.target
            case LoadStage.WARMING_UP:
                return expected.target, 0 if expected.draft else expected.projector
            case LoadStage.LOADING_DRAFT:
                return expected.target, expected.draft + expected.projector
            case _:
                return expected.total, 0


async def watch_load(
    watch: LoadWatch,
    look: Callable[[], ProcessSample],
    *,
    stall_seconds: float,
    instance_id: int,
    profile_id: str,
    publish: Callable[[Event], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Look at a loading child again and again, and tell how it comes on; returns when it has stalled.

    Whoever calls this races it with readiness and exit, cancels it then, and gives the engine's lines to `watch.line`
    as they come. `look` (see `ProcessLook`, with what is cached) may block: it runs in a thread. Told is each new
    stage, and each two hundredths of the whole, at most four times a second.
    """
    poll_seconds = min(_FIRST_POLL_SECONDS, stall_seconds / 4)
    told: tuple[LoadStage, float | None] | None = None
    told_at = float("-inf")
    while True:
        watch.sample(await asyncio.to_thread(look))
        now = clock()
        if now - told_at >= _TOLD_SECONDS and _is_news(told, watch):
            told, told_at = (watch.stage, watch.fraction), now
            publish(
                InstanceLoadProgressed(instance_id, profile_id, watch.stage.value, watch.fraction, now - watch.began_at)
            )
        if watch.stalled(now, stall_seconds):
            return
        await asyncio.sleep(poll_seconds)
        poll_seconds = min(poll_seconds * 1.1, _LONGEST_POLL_SECONDS, stall_seconds / 4)


def _is_news(told: tuple[LoadStage, float | None] | None, watch: LoadWatch) -> bool:
    if told is None or told[0] is not watch.stage:
        return True
    if told[1] is None or watch.fraction is None:
        return told[1] != watch.fraction
    return watch.fraction - told[1] >= _TOLD_FRACTION
