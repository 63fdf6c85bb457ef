"""suggest(): from the files and the machine alone, the few profiles that would fit and run best. Pure.

Everything on one card; else two or more with room for the drafter beside the output layer; else hybrid, where experts
give way and never the drafter; else MTP without a draft model, or no drafter; else the CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from app.findings import Severity
from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase
from app.placement.methods import usable_methods
from app.placement.rules import judge
from app.placement.rules.memory import judge_memory
from app.placement.search import Candidate, LayoutSearch
from app.placement.trials import Replan, Trials, case_with
from app.profiles.profile import LaunchProfile

_MOST = 5


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A whole profile, why it is suggested in one line, and its plan."""

    profile: LaunchProfile
    reason: str
    planned: PlacementPlan


def suggest(case: LaunchCase, replan: Replan, *, most: int = _MOST) -> list[Suggestion]:
    """The best few, ranked; none where the target cannot be read or nothing fits at all.

    The profile of the case is the wish: its files, context, slots and all that is not placement are kept as far as
    they fit. `replan` plans another profile on the same files and machine. Every suggestion passes the rules and fits.
    """
    if case.target is None or not case.target.block_count:
        return []
    ranked = sorted(_candidates(case, replan), key=lambda candidate: candidate.rank)
    found: list[Suggestion] = []
    for candidate in ranked:
        profile = candidate.trial.profile
        if any(profile == earlier.profile for earlier in found) or not _passes(case, candidate, replan):
            continue
        found.append(Suggestion(profile, candidate.reason, candidate.trial.planned))
        if len(found) == most:
            break
    return found


def _candidates(case: LaunchCase, replan: Replan) -> Iterator[Candidate]:
    """Of the first method every layout, of each other one its best; on the host only what fits no device."""
    methods, refused = usable_methods(case)
    search = LayoutSearch(Trials(case, replan(case.profile), replan))
    on_devices = False
    for place, method in enumerate(methods):
        found = list(islice(search.layouts(method, place), None if place == 0 else 1))
        on_devices = on_devices or bool(found)
        for candidate in found:
            yield candidate.because(f"; not with the draft model ({', '.join(refused)})" if refused else "")
        if place == 0 and found:
            yield from search.more_slots(found[0])
            yield from search.from_repeated_text(found[0])
    if not on_devices:
        # Without any device a drafter may pay or not; nothing is the measure.
        yield from search.on_the_host(methods[-1], 0)
        if not case.machine.devices:
            for place, method in enumerate(methods[:-1], start=1):
                yield from search.on_the_host(method, place)


def _passes(case: LaunchCase, candidate: Candidate, replan: Replan) -> bool:
    trial = candidate.trial
    own = case_with(case, trial.profile)
    verdicts = [*judge(own), *judge_memory(own, trial.planned, replan)]
    return trial.fits and all(finding.severity is not Severity.ERROR for finding in verdicts)
