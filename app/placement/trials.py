"""Trials: a profile changed by a merge patch, planned, and held against what there is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.findings import Severity
from app.placement.budgets import DeviceBudget, PlacementPlan
from app.placement.case import LaunchCase
from app.placement.excess import excess_bytes, with_excess
from app.placement.resolve import resolve
from app.placement.rules import judge
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile

Replan = Callable[[LaunchProfile], PlacementPlan]
Patch = Mapping[str, Any]

_CACHE_STEP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """One change and what it comes to, with what the engine is known to take above the planner's own figures."""

    patch: Patch
    profile: LaunchProfile
    planned: PlacementPlan

    @property
    def fits(self) -> bool:
        """Whether it would be launched: every device has room, and so has the host for what must stay."""
        return self.planned.fits

    @property
    def fits_devices(self) -> bool:
        """The same without the host."""
        return not self.planned.impossible and self.room_bytes >= 0

    @property
    def room_bytes(self) -> int:
        """What is left on the busiest device; 0 where no device is used whose memory is known."""
        return min((budget.headroom_bytes for budget in self.planned.devices if _counts(budget)), default=0)

    @property
    def short_bytes(self) -> int:
        """What the host lacks for what must stay there; 0 where it lacks nothing, or that is not known."""
        return max(0, -(self.planned.host.resident_headroom_bytes or 0))

    @property
    def lacking_bytes(self) -> int:
        """What all places lack together."""
        return self.short_bytes + sum(
            max(0, -budget.headroom_bytes) for budget in self.planned.devices if not budget.fits
        )


class Trials:
    """Makes trials of one case. `planned` may hold the engine's own figures; `replan` gives the planner's.

    What the engine takes above the planner's figures, on a device or on the host, it is taken to need in every trial.
    """

    def __init__(self, case: LaunchCase, planned: PlacementPlan, replan: Replan) -> None:
        self.case, self.planned = case, planned
        self._replan = replan
        self._document = document_of(case.profile)

    def of(self, patch: Patch) -> Trial:
        """Plan one change. A prompt cache that the host has no room for beside it is made smaller."""
        trial = self.plain(patch)
        if not trial.short_bytes or not trial.fits_devices:
            return trial
        cache = smaller_prompt_cache(self.case, trial.profile, trial.short_bytes)
        return trial if cache is None else self.plain(joined(patch, cache))

    def profile(self, patch: Patch) -> LaunchProfile:
        """The profile with a change."""
        return parse_profile(merge_patch(self._document, patch))

    def plain(self, patch: Patch) -> Trial:
        """The same with the prompt cache as it is."""
        profile = self.profile(patch)
        return Trial(patch, profile, with_excess(self._replan(profile), self._excess_bytes))

    def with_prompt_cache(self, patch: Patch) -> Trial:
        """A change of the prompt cache alone: all else stays exactly as the figures at hand have it."""
        profile = self.profile(patch)
        host, own = self.planned.host, self._own.host
        grown_bytes = self._replan(profile).host.terms["host_caches"] - own.terms["host_caches"]
        terms = {**host.terms, "host_caches": host.terms["host_caches"] + grown_bytes}
        return Trial(patch, profile, self.planned.with_terms({}, terms, host.mapped_bytes))

    @cached_property
    def now(self) -> Trial:
        """The case as it is, with the figures at hand."""
        return Trial({}, self.case.profile, self.planned)

    @cached_property
    def _own(self) -> PlacementPlan:
        """The planner's own figures for the case as it is."""
        return self._replan(self.case.profile)

    @cached_property
    def _excess_bytes(self) -> Mapping[str, int]:
        return excess_bytes(self.planned, self._own)

    def breaks_a_rule(self, profile: LaunchProfile) -> bool:
        """Whether a change would be refused for another reason than the profile is now."""
        return bool(errors_of(case_with(self.case, profile)) - self._errors)

    @cached_property
    def _errors(self) -> frozenset[str]:
        return errors_of(self.case)


def case_with(case: LaunchCase, profile: LaunchProfile) -> LaunchCase:
    """The case for another profile on the same files; a draft that it does not name is not there."""
    draft = case.draft if profile.speculation.draft is not None else None
    return replace(case, profile=profile, draft=draft)


def errors_of(case: LaunchCase) -> frozenset[str]:
    """The rules that refuse a case whatever its bytes."""
    return frozenset(finding.rule for finding in judge(case) if finding.severity is Severity.ERROR)


def joined(first: Patch, second: Patch) -> Patch:
    """Both patches in one; the second wins, and null stays null."""
    both = dict(first)
    for key, value in second.items():
        known = both.get(key)
        both[key] = joined(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return both


def smaller_prompt_cache(case: LaunchCase, profile: LaunchProfile, short_bytes: int) -> Patch | None:
    """A prompt cache that gives back so many bytes of the host; None where it has not got them."""
    left = resolve(case_with(case, profile)).prompt_cache_bytes - short_bytes
    return None if left < 0 else {"context": {"prompt_cache_bytes": left - left % _CACHE_STEP_BYTES}}


def smallest(first: int, last: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest number from `first` to `last` that holds, if it holds from some number on; None where it never does.

    The last is asked first: about log2 questions.
    """
    if first > last or not holds(last):
        return None
    while first < last:
        middle = (first + last) // 2
        if holds(middle):
            last = middle
        else:
            first = middle + 1
    return last


def largest(first: int, last: int, holds: Callable[[int], bool]) -> int | None:
    """The largest number from `first` to `last` that holds, if it holds up to some number."""
    found = smallest(-last, -first, lambda number: holds(-number))
    return None if found is None else -found


def _counts(budget: DeviceBudget) -> bool:
    return budget.is_known and budget.required_bytes > 0
