"""suggest(): from the files and the machine alone, the few profiles that would fit and run best. Pure.

Everything on one card; else two or more with room for the drafter beside the output layer; else hybrid, where experts
give way and never the drafter; else MTP without a draft model, or no drafter; else the CPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from app.findings import Finding, Severity
from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase
from app.placement.methods import UsableMethod, usable_methods
from app.placement.rules import judge
from app.placement.rules.memory import judge_memory
from app.placement.search import Candidate, LayoutSearch
from app.placement.trials import Replan, Trials, case_with
from app.placement.unsuggested import as_warnings, no_layers, no_room_with, nothing_fits, without_repeats
from app.profiles.profile import LaunchProfile

_MOST = 5
Refused: TypeAlias = tuple[Candidate, Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A whole profile, why it is suggested in one line, and its plan."""

    profile: LaunchProfile
    reason: str
    planned: PlacementPlan


@dataclass(frozen=True, slots=True)
class Suggested:
    """The best few, ranked, and what of the wish they leave out; where there are none, why."""

    profiles: Sequence[Suggestion]
    findings: Sequence[Finding]


def suggest(case: LaunchCase, replan: Replan, *, most: int = _MOST) -> Suggested:
    """The best few for the files of a case.

    The profile of the case is the wish: its files, context, slots and all that is not placement are kept as far as
    they fit. `replan` plans another profile on the same files and machine. Every suggestion passes the rules and fits.
    """
    if case.target is None or not case.target.block_count:
        errors = _errors(judge(case))
        return Suggested((), errors if errors or case.target is None else [no_layers(case.target)])
    methods, left_out = usable_methods(case)
    search = LayoutSearch(Trials(case, replan(case.profile), replan))
    ranked = sorted(_candidates(case, search, methods, left_out), key=lambda candidate: candidate.rank)
    found, refused = _chosen(case, ranked, replan, most)
    reasons = _missing(found, methods, refused, search) if found else _nothing(case, refused, search, methods)
    return Suggested(found, without_repeats([*reasons, *as_warnings(left_out)]))


def _chosen(
    case: LaunchCase, ranked: Sequence[Candidate], replan: Replan, most: int
) -> tuple[list[Suggestion], list[Refused]]:
    """The first that pass the rules, and those before them that do not."""
    found: list[Suggestion] = []
    refused: list[Refused] = []
    for candidate in ranked:
        profile = candidate.trial.profile
        if any(profile == earlier.profile for earlier in found):
            continue
        if refusals := _refusals(case, candidate, replan):
            refused.append((candidate, refusals))
            continue
        found.append(Suggestion(profile, candidate.reason, candidate.trial.planned))
        if len(found) == most:
            break
    return found, refused


def _candidates(
    case: LaunchCase, search: LayoutSearch, methods: Sequence[UsableMethod], left_out: Sequence[Finding]
) -> Iterator[Candidate]:
    """Of the first method every layout, of each other one its best; on the host only what fits no device."""
    why = ", ".join(found.rule for found in left_out) if case.profile.speculation.draft else ""
    on_devices = False
    for place, method in enumerate(methods):
        found = list(islice(search.layouts(method, place), None if place == 0 else 1))
        on_devices = on_devices or bool(found)
        for candidate in found:
            yield candidate.because(f"; not with the draft model ({why})" if why else "")
        if place == 0 and found:
            yield from search.more_slots(found[0])
            yield from search.from_repeated_text(found[0])
    if not on_devices:
        # Without any device a drafter may pay or not; nothing is the measure.
        yield from search.on_the_host(methods[-1], 0)
        if not case.machine.devices:
            for place, method in enumerate(methods[:-1], start=1):
                yield from search.on_the_host(method, place)


def _missing(
    found: Sequence[Suggestion],
    methods: Sequence[UsableMethod],
    refused: Sequence[Refused],
    search: LayoutSearch,
) -> Iterator[Finding]:
    """Why drafters that the files have are in no suggestion."""
    used = {suggestion.profile.speculation.method for suggestion in found}
    for place, method in enumerate(methods[:-1]):
        if method.method in used:
            continue
        refusals = [why for candidate, why in refused if candidate.place == place and not candidate.is_variant]
        if refusals:
            yield from as_warnings(refusals[0])
        else:
            yield no_room_with(method, search.nearest(method, place))


def _nothing(
    case: LaunchCase,
    refused: Sequence[Refused],
    search: LayoutSearch,
    methods: Sequence[UsableMethod],
) -> Sequence[Finding]:
    """What refuses the best layout that fits; else what refuses the files whatever fits; else the room that lacks."""
    if refused:
        return refused[0][1]
    nearest = search.nearest(methods[-1], len(methods) - 1)
    refusals = [] if nearest is None else _errors(judge(case_with(case, nearest.trial.profile)))
    return refusals or [nothing_fits(nearest)]


def _refusals(case: LaunchCase, candidate: Candidate, replan: Replan) -> Sequence[Finding]:
    """What would refuse a layout that has room; nothing where it may be suggested."""
    trial = candidate.trial
    own = case_with(case, trial.profile)
    errors = _errors([*judge(own), *judge_memory(own, trial.planned, replan)])
    return errors or ([] if trial.fits else [nothing_fits(candidate)])


def _errors(found: Sequence[Finding]) -> list[Finding]:
    return [one for one in found if one.severity is Severity.ERROR]
