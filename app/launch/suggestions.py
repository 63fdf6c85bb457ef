"""Suggestions: reads the files and the machine, searches, and checks what was found as a start would."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.inventory.devices import Machine
from app.inventory.models import ModelFile, ModelKind, read_model, resolve_model_path
from app.inventory.vocabulary import first_different_token
from app.launch.check import LaunchCheck
from app.launch.circumstances import Circumstances, OtherLaunches
from app.launch.planning import Planner
from app.launch.report import PlacementReport, Verdict
from app.launch.returning import with_returning
from app.llama_server.memory_options import memory_options
from app.llama_server.probe import EngineProbe
from app.placement.case import LaunchCase
from app.placement.plan import planned_model
from app.placement.suggest import Suggestion, suggest
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class CheckedSuggestion:
    """A profile that would be launched, why it is suggested, and the report of its check."""

    profile: LaunchProfile
    reason: str
    report: PlacementReport


class LaunchSuggestions:
    """Asks the same collaborators as the check does, and the check itself for every report."""

    def __init__(self, check: LaunchCheck, probe: EngineProbe, circumstances: Circumstances) -> None:
        self._check, self._probe, self._now = check, probe, circumstances

    async def suggest(
        self, wish: LaunchProfile, revision: int, *, machine: Machine | None = None
    ) -> list[CheckedSuggestion]:
        """The best few for the files of `wish`, ranked; what the check would refuse is left out.

        With a `machine` of another place nothing of this one counts. Raises ModelFileError for a file that cannot be
        read, EngineError when there is no engine to ask.
        """
        engine = await self._probe.facts()
        others = self._now.others(wish.id) if machine is None else OtherLaunches({}, {})
        met = machine or with_returning(await self._now.machine(wish.env), others.returning)
        case = LaunchCase(
            profile=wish,
            machine=met,
            engine=replace(engine, devices=met.devices) if machine is None else engine.elsewhere(met.devices),
            claims=self._now.claims(wish),
            rpc=self._now.rpc,
        )
        found = await asyncio.to_thread(self._search, case, others.reserved)
        checked = [
            CheckedSuggestion(
                each.profile,
                each.reason,
                (await self._check.check(each.profile, revision, machine=machine)).report,
            )
            for each in found
        ]
        return [each for each in checked if each.report.verdict is not Verdict.REFUSED]

    def _search(self, bare: LaunchCase, reserved: Mapping[str, int]) -> list[Suggestion]:
        wish = bare.profile
        target = self._read(wish.target.path)
        draft = self._read(wish.speculation.draft.path) if wish.speculation.draft else None
        if draft is not None and draft.path == target.path:
            draft = None  # it would be slower than no draft
        different = first_different_token(target, draft) if draft and draft.kind is ModelKind.TARGET else None
        case = replace(
            bare,
            target=target,
            draft=draft,
            projector=self._read(wish.projector) if wish.projector else None,
            first_different_token=different,
        )
        planner = Planner(
            case=case,
            reservations=reserved,
            options=lambda profile: memory_options(profile.extra_args, case.engine.flags),
            margin_bytes=self._now.margin_bytes,
            target=planned_model(target),
            draft=planned_model(draft) if draft else None,
        )
        return suggest(case, planner.plan)

    def _read(self, path: str) -> ModelFile:
        return read_model(resolve_model_path(path, self._now.model_dirs))
