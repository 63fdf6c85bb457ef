"""What was served with speculation, beside the baselines of the same targets: what can be compared, and with what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from sqlmodel import Session

from app.speculative.speedup import REQUESTS_LEAST, Estimate, Resampler, Stratum, Timed, estimates
from app.telemetry.queries import RequestFilters
from app.telemetry.recorded_launches import RecordedLaunch, differing_parts, recorded_launches
from app.telemetry.stats_groups import GroupKey
from app.telemetry.timed import timed_requests


class NotCompared(StrEnum):
    """Why there is no speed-up."""

    NO_BASELINE = "no-baseline"
    TOO_FEW_REQUESTS = "too-few-requests"


@dataclass(frozen=True, slots=True)
class Speedup:
    """The gain of a group, category for category, and by category where that is known.

    `estimate` is None for a `reason`. `not_compared` has, by category, the requests with a rate on both sides where
    they are too few. `baselines` are the profiles that it is measured against; `differences` names what the two sides
    do not have in common: `device_set`, `engine_build`, and parts of the profiles.
    """

    estimate: Estimate | None
    by_category: Mapping[str, Estimate]
    not_compared: Mapping[str, tuple[int, int]]
    baselines: Sequence[str]
    differences: Sequence[str]

    @property
    def reason(self) -> NotCompared | None:
        """Why there is no estimate, None where there is one."""
        if self.estimate is not None:
            return None
        return NotCompared.TOO_FEW_REQUESTS if self.baselines else NotCompared.NO_BASELINE


@dataclass(slots=True)
class Baseline:
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


class Comparison:
    """What a group has with speculation, beside what its baselines have."""

    def __init__(self) -> None:
        self._strata: dict[tuple[int, str | None], Stratum] = {}
        self._pairs: dict[tuple[int, str | None], set[tuple[str, tuple[str, ...]]]] = {}

    def add(self, launch: RecordedLaunch, baseline: Baseline | None, category: str | None, timed: Timed) -> None:
        """Add what a launch served of a category."""
        key = (id(baseline), category)
        plain = Timed() if baseline is None else baseline.by_category.get(category, Timed())
        self._strata.setdefault(key, Stratum(category, Timed(), plain)).speculated.merge(timed)
        if baseline is not None:
            pair = (baseline.profile_id, tuple(baseline.differences(launch)))
            self._pairs.setdefault(key, set()).add(pair)

    def speedup(self, resampler: Resampler | None) -> Speedup:
        """As far as there is enough; intervals with a `resampler`."""
        enough = {key: stratum for key, stratum in self._strata.items() if stratum.is_enough}
        together, by_name = estimates(list(enough.values()), resampler) if enough else (None, {})
        pairs = set().union(*(self._pairs.get(key, set()) for key in enough or self._strata))
        return Speedup(
            together,
            {name: estimate for name, estimate in by_name.items() if name is not None},
            self._too_few(),
            sorted({profile_id for profile_id, _ in pairs}),
            sorted({name for _, differences in pairs for name in differences}),
        )

    def _too_few(self) -> Mapping[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for stratum in self._strata.values():
            if stratum.name is not None and not stratum.is_enough:
                requests, plain = found.get(stratum.name, (0, 0))
                found[stratum.name] = (requests + stratum.speculated.requests, plain + stratum.plain.requests)
        return found


def read_comparisons(
    session: Session, filters: RequestFilters, names: Sequence[str], with_blocks: bool = True
) -> Mapping[GroupKey, "Comparison"]:
    """All that was served with speculation and has a rate, by its group; `with_blocks` as intervals need them."""
    launches = recorded_launches(session)
    speculating = {launch.context_id: launch for launch in launches if not launch.is_plain}
    targets = {launch.target for launch in speculating.values()}
    plain = [launch for launch in launches if launch.is_plain and launch.target in targets]
    baselines = _baselines(session, filters, plain, with_blocks)
    ranked = {context: _ranked(launch, baselines) for context, launch in speculating.items()}
    groups: dict[GroupKey, Comparison] = {}
    served = timed_requests(session, filters, names, list(speculating), with_blocks=with_blocks)
    for (key, context, category), timed in served.items():
        group = groups.setdefault(key, Comparison())
        group.add(speculating[context], _chosen(ranked[context], category), category, timed)
    return groups


def _chosen(ranked: Sequence["Baseline"], category: str | None) -> "Baseline | None":
    """The first that has enough of this category, else the first of all."""
    return next((each for each in ranked if each.has_enough(category)), ranked[0] if ranked else None)


def _baselines(
    session: Session, filters: RequestFilters, plain: Sequence[RecordedLaunch], with_blocks: bool
) -> Mapping[PurePosixPath, Sequence[Baseline]]:
    """By target; the one with most tokens first."""
    everywhen = RequestFilters(outcome=filters.outcome, category=filters.category)
    by_id = {launch.context_id: launch for launch in plain}
    found: dict[PurePosixPath, dict[tuple[Any, ...], Baseline]] = {}
    served = timed_requests(session, everywhen, (), list(by_id), with_blocks=with_blocks)
    for (_, context, category), timed in served.items():
        launch = by_id[context]
        origin = (launch.profile_id, launch.engine_build, launch.device_set, launch.settings)
        baseline = found.setdefault(launch.target, {}).setdefault(origin, Baseline(*origin))
        baseline.by_category.setdefault(category, Timed()).merge(timed)
    return {target: sorted(each.values(), key=_tokens, reverse=True) for target, each in found.items()}


def _ranked(launch: RecordedLaunch, baselines: Mapping[PurePosixPath, Sequence[Baseline]]) -> Sequence[Baseline]:
    """The best first: what differs in least, and in devices last; of equals what the profile itself recorded."""

    def distance(baseline: Baseline) -> tuple[bool, bool, int, bool]:
        differences = baseline.differences(launch)
        is_other = baseline.profile_id != launch.profile_id
        return "device_set" in differences, "engine_build" in differences, len(differences), is_other

    return sorted(baselines.get(launch.target, ()), key=distance)


def _tokens(baseline: Baseline) -> int:
    return sum(timed.tokens for timed in baseline.by_category.values())
