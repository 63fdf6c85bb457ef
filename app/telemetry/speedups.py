"""What speculation gained each profile, against what was recorded of the same target without it."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sqlmodel import Session

from app.database import Database
from app.speculative.speedup import REQUESTS_LEAST, Estimate, Resampler, Stratum, Timed, estimates
from app.telemetry.queries import RequestFilters
from app.telemetry.recorded_launches import RecordedLaunch, differing_parts, recorded_launches
from app.telemetry.stats_groups import GroupKey
from app.telemetry.timed import timed_requests

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
    common: `device_set`, `engine_build`, and parts of the profiles.
    """

    estimate: Estimate
    by_category: Mapping[str, Estimate]
    baselines: Sequence[str]
    differences: Sequence[str]


@dataclass(slots=True)
class _Baseline:
    """What a profile recorded without speculation, on one build and device set, with the same settings."""

    profile_id: str
    engine_build: str
    device_set: str
    settings: Sequence[bytes]
    by_category: dict[str | None, Timed] = field(default_factory=dict)

    def has_enough(self, category: str | None) -> bool:
        """Whether it can be compared with requests of this category."""
        timed = self.by_category.get(category)
        return timed is not None and timed.requests >= REQUESTS_LEAST

    def differences(self, launch: RecordedLaunch) -> list[str]:
        """What it has not in common with a launch, speculation aside."""
        names = [name for name in ("device_set", "engine_build") if getattr(self, name) != getattr(launch, name)]
        return [*names, *differing_parts(self.settings, launch.settings)]


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
            now = self._clock()
            fresh = [(key, each) for key, each in self._kept.items() if now - each[0] < FRESH_SECONDS]
            self._kept = dict([*fresh[-_KEPT_MOST + 1 :], ((filters, names), (now, found))])
            return found


def speedup_ratios(database: Database, filters: RequestFilters) -> Mapping[str, float]:
    """The speed-up of each profile that can be compared: the same as Speedups tells, without intervals, and cheaper.

    Raises DatabaseUnavailable.
    """
    with database.read() as session:
        groups = _read(session, filters, ("profile",), with_blocks=False)
    compared = ((str(key[0]), group.speedup(None)) for key, group in groups.items())
    return {profile_id: speedup.estimate.speedup for profile_id, speedup in compared if speedup is not None}


def _compared(groups: Mapping[GroupKey, "_Group"]) -> Mapping[GroupKey, Speedup]:
    # Seeded: the same requests have the same interval.
    chance = random.Random(0)  # noqa: S311
    resampler = Resampler(chance, _Breath()) if len(groups) <= INTERVALS_MOST else None
    compared = {key: group.speedup(resampler) for key, group in groups.items()}
    return {key: speedup for key, speedup in compared.items() if speedup is not None}


def _read(
    session: Session, filters: RequestFilters, names: Sequence[str], with_blocks: bool = True
) -> Mapping[GroupKey, "_Group"]:
    """All that was served with speculation and has a baseline that knows its category."""
    launches = recorded_launches(session)
    speculating = {launch.context_id: launch for launch in launches if not launch.is_plain}
    targets = {launch.target for launch in speculating.values()}
    plain = [launch for launch in launches if launch.is_plain and launch.target in targets]
    if not plain:
        return {}
    baselines = _baselines(session, filters, plain, with_blocks)
    ranked = {context: _ranked(launch, baselines) for context, launch in speculating.items()}
    groups: dict[GroupKey, _Group] = {}
    contexts = [context for context, candidates in ranked.items() if candidates]
    served = timed_requests(session, filters, names, contexts, with_blocks=with_blocks)
    for (key, context, category), timed in served.items():
        baseline = next((each for each in ranked[context] if each.has_enough(category)), None)
        if baseline is not None:
            groups.setdefault(key, _Group()).add(speculating[context], baseline, category, timed)
    return groups


def _baselines(
    session: Session, filters: RequestFilters, plain: Sequence[RecordedLaunch], with_blocks: bool
) -> Mapping[PurePosixPath, Sequence[_Baseline]]:
    """By target; the one with most tokens first."""
    everywhen = RequestFilters(outcome=filters.outcome, category=filters.category)
    by_id = {launch.context_id: launch for launch in plain}
    found: dict[PurePosixPath, dict[tuple[Any, ...], _Baseline]] = {}
    served = timed_requests(session, everywhen, (), list(by_id), with_blocks=with_blocks)
    for (_, context, category), timed in served.items():
        launch = by_id[context]
        origin = (launch.profile_id, launch.engine_build, launch.device_set, launch.settings)
        baseline = found.setdefault(launch.target, {}).setdefault(origin, _Baseline(*origin))
        baseline.by_category.setdefault(category, Timed()).merge(timed)
    return {target: sorted(each.values(), key=_tokens, reverse=True) for target, each in found.items()}


def _ranked(launch: RecordedLaunch, baselines: Mapping[PurePosixPath, Sequence[_Baseline]]) -> Sequence[_Baseline]:
    """The best first: what differs in least, and in devices last; of equals what the profile itself recorded."""

    def distance(baseline: _Baseline) -> tuple[bool, bool, int, bool]:
        differences = baseline.differences(launch)
        is_other = baseline.profile_id != launch.profile_id
        return "device_set" in differences, "engine_build" in differences, len(differences), is_other

    return sorted(baselines.get(launch.target, ()), key=distance)


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
