"""Suggestions: reads the files and the machine, searches, and checks what was found as a start would."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.findings import Finding, Severity
from app.inventory.devices import Machine
from app.inventory.models import ModelFile, ModelKind, read_model, resolve_model_path
from app.inventory.vocabulary import first_different_token
from app.launch.check import LaunchCheck
from app.launch.circumstances import Circumstances
from app.launch.planning import planner_of
from app.launch.report import PlacementReport, Verdict
from app.llama_server.probe import EngineProbe
from app.placement.case import LaunchCase
from app.placement.suggest import Suggested, suggest
from app.placement.unsuggested import as_warnings, without_repeats
from app.profiles.profile import LaunchProfile
from app.profiles.stored import UNSTORED


@dataclass(frozen=True, slots=True)
class CheckedSuggestion:
    """A profile that would be launched, why it is suggested, and the report of its check."""

    profile: LaunchProfile
    reason: str
    report: PlacementReport


@dataclass(frozen=True, slots=True)
class CheckedSuggestions:
    """The suggestions, ranked, and what of the wish they leave out; where there are none, why."""

    profiles: Sequence[CheckedSuggestion]
    findings: Sequence[Finding]


class LaunchSuggestions:
    """Asks the same collaborators as the check does, and the check itself for every report."""

    def __init__(self, check: LaunchCheck, probe: EngineProbe, circumstances: Circumstances) -> None:
        self._check, self._probe, self._now = check, probe, circumstances

    async def suggest(self, wish: LaunchProfile, *, machine: Machine | None = None) -> CheckedSuggestions:
        """The best few for the files of `wish`; what the check would refuse is left out, and said.

        With a `machine` of another place nothing of this one counts. Raises ModelFileError for a file that cannot be
        read, EngineError when there is no engine to ask.
        """
        engine = await self._probe.facts()
        met = await self._now.meet(wish, engine, machine)
        # Overrides belong to a layout, and none of an earlier one stays; their patterns are not even looked for.
        wish = wish.model_copy(update={"placement": wish.placement.model_copy(update={"override_tensor": ()})})
        case = LaunchCase(profile=wish, machine=met.machine, engine=met.engine, claims=self._now.claims(wish))
        found = await asyncio.to_thread(self._search, case, met.others.reserved)
        checked = [
            CheckedSuggestion(
                each.profile,
                each.reason,
                (await self._check.check(each.profile, UNSTORED, machine=machine)).report,
            )
            for each in found.profiles
        ]
        return _passed(checked, found.findings)

    def _search(self, bare: LaunchCase, reserved: Mapping[str, int]) -> Suggested:
        wish = bare.profile
        target = self._read(wish.target.path)
        draft = self._read(wish.speculation.draft.path) if wish.speculation.draft else None
        different = first_different_token(target, draft) if draft and draft.kind is ModelKind.TARGET else None
        case = replace(
            bare,
            target=target,
            draft=draft,
            projector=self._read(wish.projector) if wish.projector else None,
            first_different_token=different,
        )
        return suggest(case, planner_of(case, reserved, self._now.margin_bytes).plan)

    def _read(self, path: str) -> ModelFile:
        return read_model(resolve_model_path(path, self._now.model_dirs))


def _passed(checked: Sequence[CheckedSuggestion], known: Sequence[Finding]) -> CheckedSuggestions:
    """Those that their check does not refuse, and why the best of a method, or of all, was refused."""
    passed = [each for each in checked if each.report.verdict is not Verdict.REFUSED]
    refused = [each for each in checked if each.report.verdict is Verdict.REFUSED]
    if not passed:
        errors = _errors(refused[0].report) if refused else []
        return CheckedSuggestions((), without_repeats([*errors, *known]))
    methods = {each.profile.speculation.method for each in passed}
    missing = [each for each in refused if each.profile.speculation.method not in methods]
    errors = [error for each in missing for error in _errors(each.report)]
    return CheckedSuggestions(passed, without_repeats([*as_warnings(errors), *known]))


def _errors(report: PlacementReport) -> list[Finding]:
    return [found for found in report.findings if found.severity is Severity.ERROR]
