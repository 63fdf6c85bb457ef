"""What speculation gained each profile, against what was recorded of the same target without it."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from app.database import Database
from app.speculative.speedup import Resampler
from app.telemetry.comparison import Speedup, read_comparisons
from app.telemetry.queries import RequestFilters
from app.telemetry.stats_groups import GroupKey

# An answer is kept a hundred times as long as it took, within these bounds: whoever keeps asking takes a hundredth of a
# core.
FRESH_LEAST_SECONDS = 1.0
FRESH_MOST_SECONDS = 60.0
_FRESH_TIMES = 100
# An interval takes some ten milliseconds of computing. More groups than these have the speed-up without it.
INTERVALS_MOST = 50
_KEPT_MOST = 32
# The event loop waits for what computes in another thread: no longer than this.
_BUSY_SECONDS = 0.0005

_Question = tuple[RequestFilters, tuple[str, ...]]
_Answer = Mapping[GroupKey, Speedup]


class Speedups:
    """Answers from memory for a moment, since intervals take long. Any thread may ask; one at a time computes."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        # Until when, and what.
        self._kept: dict[_Question, tuple[float, _Answer]] = {}

    def of(self, filters: RequestFilters, group_by: Sequence[str]) -> _Answer:
        """By the group's values in the order of `group_by`, for groups that have speculated and have a rate.

        Empty without `profile` in it. `since`, `until` and `profile` choose what is compared, not the baselines: these
        count whenever they were served.
        """
        question = (filters, tuple(dict.fromkeys(group_by)))
        if "profile" not in question[1]:
            return {}
        with self._lock:
            began = self._clock()
            fresh = {each: answer for each, answer in self._kept.items() if began < answer[0]}
            if question not in fresh:
                found = self._compared(question)
                now = self._clock()
                seconds = min(max((now - began) * _FRESH_TIMES, FRESH_LEAST_SECONDS), FRESH_MOST_SECONDS)
                fresh = dict([*list(fresh.items())[-_KEPT_MOST + 1 :], (question, (now + seconds, found))])
            self._kept = fresh
            return fresh[question][1]

    def _compared(self, question: _Question) -> _Answer:
        with self._database.read() as session:
            groups = read_comparisons(session, *question)
        # Seeded: the same requests have the same interval.
        chance = random.Random(0)  # noqa: S311
        resampler = Resampler(chance, _Breath()) if len(groups) <= INTERVALS_MOST else None
        return {key: group.speedup(resampler) for key, group in groups.items()}


def speedup_ratios(database: Database, filters: RequestFilters) -> Mapping[str, float]:
    """The speed-up of each profile that can be compared: the same as Speedups tells, without intervals, and cheaper.

    Raises DatabaseUnavailable.
    """
    with database.read() as session:
        groups = read_comparisons(session, filters, ("profile",), with_blocks=False)
    found = ((str(key[0]), group.speedup(None).estimate) for key, group in groups.items())
    return {profile_id: estimate.speedup for profile_id, estimate in found if estimate is not None}


class _Breath:
    """Called between computations: sleeps a moment where it was not for too long."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since > _BUSY_SECONDS:
            time.sleep(_BUSY_SECONDS)
            self._since = time.perf_counter()
