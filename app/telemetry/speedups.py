"""What speculation gained each profile, against what was recorded of the same target without it."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sqlmodel import Session

from app.database import Database
from app.speculative.speedup import REQUESTS_LEAST, Estimate, Resampler, Stratum, Timed, estimates
from app.telemetry.queries import RequestFilters
from app.telemetry.recorded_launches import RecordedLaunch, recorded_launches
from app.telemetry.stats_groups import GroupKey
from app.telemetry.timed import SINGLE_ROWS_MOST, timed_requests

FRESH_SECONDS = 60.0
# An interval takes some ten milliseconds of computing. More groups than these have the speed-up without it.
INTERVALS_MOST = 50
_KEPT_MOST = 32
# The event loop waits for what computes in another thread: no longer than this.
_BUSY_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class Speedup:
    """The gain of a group, category for category, and by category where that is known.

    `baselines` are the profiles that it is measured against; `differences` names what the two sides do not have in
    common of `engine_build` and `device_set`.
    """

    estimate: Estimate
    by_category: Mapping[str, Estimate]
    baselines: Sequence[str]
    differences: Sequence[str]


@dataclass(slots=True)
class _Baseline:
    """What a profile recorded without speculation, on one build and device set."""

    profile_id: str
    engine_build: str
    device_set: str
    by_category: dict[str | None, Timed] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Of all categories."""
        return sum(timed.requests for timed in self.by_category.values())

    def differences(self, launch: RecordedLaunch) -> list[str]:
        """What it has not in common with a launch, of that which is not a matter of the profile."""
        names = ("engine_build", "device_set")
        return [name for name in names if getattr(self, name) != getattr(launch, name)]


class Speedups:
    """Answers from memory for FRESH_SECONDS, since intervals take long. Any thread may ask; one at a time computes."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[RequestFilters, tuple[str, ...]], tuple[float, Mapping[GroupKey, Speedup]]] = {}

    def of(self, filters: RequestFilters, group_by: Sequence[str]) -> Mapping[GroupKey, Speedup]:
        """By the group's values in the order of `group_by`, for groups that can be compared.

        Empty without `profile` in it. `since`, `until` and `profile` choose what is compared, not the baselines: these
        count whenever they were served.
        """
        names = tuple(dict.fromkeys(group_by))
        if "profile" not in names:
            return {}
        with self._lock:
            kept = self._kept.get((filters, names))
            if kept is not None and self._clock() - kept[0] < FRESH_SECONDS:
                return kept[1]
            with self._database.read() as session:
                groups = _read(session, filters, names)
            found = _compared(groups)
            self._kept.pop((filters, names), None)
            while len(self._kept) >= _KEPT_MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[filters, names] = (self._clock(), found)
            return found


def speedup_ratios(database: Database, filters: RequestFilters) -> Mapping[str, float]:
    """The speed-up of each profile that can be compared: the same as Speedups tells, without intervals, and cheaper.

    Raises DatabaseUnavailable.
    """
    with database.read() as session:
        groups = _read(session, filters, ("profile",), single_rows_most=0)
    compared = ((str(key[0]), group.speedup(None)) for key, group in groups.items())
    return {profile_id: speedup.estimate.speedup for profile_id, speedup in compared if speedup is not None}


def _compared(groups: Mapping[GroupKey, "_Group"]) -> Mapping[GroupKey, Speedup]:
    # Seeded: the same requests have the same interval.
    chance = random.Random(0)  # noqa: S311
    resampler = Resampler(chance, _Breath()) if len(groups) <= INTERVALS_MOST else None
    compared = {key: group.speedup(resampler) for key, group in groups.items()}
    return {key: speedup for key, speedup in compared.items() if speedup is not None}


def _read(
    session: Session, filters: RequestFilters, names: Sequence[str], single_rows_most: int = SINGLE_ROWS_MOST
) -> Mapping[GroupKey, "_Group"]:
    """All that was served with speculation and has a baseline that knows its category."""
    launches = recorded_launches(session)
    speculating = {launch.context_id: launch for launch in launches if not launch.is_plain}
    targets = {launch.target for launch in speculating.values()}
    plain = [launch for launch in launches if launch.is_plain and launch.target in targets]
    if not plain:
        return {}
    baselines = _baselines(session, filters, plain, single_rows_most)
    chosen = {context: _choose(launch, baselines) for context, launch in speculating.items()}
    groups: dict[GroupKey, _Group] = {}
    contexts = [context for context, baseline in chosen.items() if baseline is not None]
    served = timed_requests(session, filters, names, contexts, single_rows_most=single_rows_most)
    for (key, context, category), timed in served.items():
        if (baseline := chosen[context]) is not None and category in baseline.by_category:
            groups.setdefault(key, _Group()).add(speculating[context], baseline, category, timed)
    return groups


def _baselines(
    session: Session, filters: RequestFilters, plain: Sequence[RecordedLaunch], single_rows_most: int
) -> Mapping[PurePosixPath, Sequence[_Baseline]]:
    """By target, those with enough requests; the one with most tokens first."""
    everywhen = RequestFilters(outcome=filters.outcome, category=filters.category)
    by_id = {launch.context_id: launch for launch in plain}
    found: dict[PurePosixPath, dict[tuple[str, ...], _Baseline]] = {}
    served = timed_requests(session, everywhen, (), list(by_id), single_rows_most=single_rows_most)
    for (_, context, category), timed in served.items():
        launch = by_id[context]
        origin = (launch.profile_id, launch.engine_build, launch.device_set)
        baseline = found.setdefault(launch.target, {}).setdefault(origin, _Baseline(*origin))
        baseline.by_category.setdefault(category, Timed()).merge(timed)
    return {
        target: sorted(
            (each for each in of_target.values() if each.requests >= REQUESTS_LEAST), key=_tokens, reverse=True
        )
        for target, of_target in found.items()
    }


def _choose(launch: RecordedLaunch, baselines: Mapping[PurePosixPath, Sequence[_Baseline]]) -> _Baseline | None:
    """That on the same devices and build; else one that differs in little."""

    def distance(baseline: _Baseline) -> tuple[int, bool]:
        differences = baseline.differences(launch)
        return len(differences), "device_set" in differences

    return min(baselines.get(launch.target, ()), key=distance, default=None)


def _tokens(baseline: _Baseline) -> int:
    return sum(timed.tokens for timed in baseline.by_category.values())


class _Group:
    """What a group has with speculation, beside what its baselines have."""

    def __init__(self) -> None:
        self._strata: dict[tuple[int, str | None], Stratum] = {}
        self._pairs: dict[tuple[int, str | None], set[tuple[str, tuple[str, ...]]]] = {}

    def add(self, launch: RecordedLaunch, baseline: _Baseline, category: str | None, timed: Timed) -> None:
        """Add what a launch served of a category."""
        key = (id(baseline), category)
        stratum = self._strata.setdefault(key, Stratum(category, Timed(), baseline.by_category[category]))
        stratum.speculated.merge(timed)
        pair = (baseline.profile_id, tuple(baseline.differences(launch)))
        self._pairs.setdefault(key, set()).add(pair)

    def speedup(self, resampler: Resampler | None) -> Speedup | None:
        """None where nothing is enough to be compared."""
        enough = {key: stratum for key, stratum in self._strata.items() if stratum.is_enough}
        if not enough:
            return None
        together, by_name = estimates(list(enough.values()), resampler)
        pairs = set().union(*(self._pairs[key] for key in enough))
        return Speedup(
            together,
            {name: estimate for name, estimate in by_name.items() if name is not None},
            sorted({profile_id for profile_id, _ in pairs}),
            sorted({name for _, differences in pairs for name in differences}),
        )


class _Breath:
    """Called between computations: sleeps a moment where it was not for too long."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since > _BUSY_SECONDS:
            time.sleep(_BUSY_SECONDS)
            self._since = time.perf_counter()
