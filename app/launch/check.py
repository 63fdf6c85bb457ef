"""The check, read from top to bottom: files -> case -> findings -> flags -> plan -> report. A start executes it."""

import asyncio
import logging

from app.findings import Finding, blocking
from app.inventory.devices import Machine
from app.inventory.engine import EngineFacts
from app.launch.circumstances import Circumstances, Met
from app.launch.dry_run import DryRuns
from app.launch.files import ProfileFiles, read_profile_files
from app.launch.notices import engine_refuses, not_witnessed, notices, rpc_held
from app.launch.planning import Planner, planner_of
from app.launch.report import Checked, Launch, report_of
from app.launch.witness import Refusal, Witness
from app.llama_server.flags import launch_flags
from app.llama_server.probe import EngineProbe
from app.llama_server.rules import judge_engine
from app.placement.budgets import PlacementPlan
from app.placement.calibration import Measured
from app.placement.case import LaunchCase
from app.placement.resolve import ResolvedLaunch, resolve
from app.placement.rules import judge
from app.placement.rules.computed import with_computed_fixes
from app.placement.rules.memory import judge_memory
from app.profiles.profile import LaunchProfile

_log = logging.getLogger(__name__)


class LaunchCheck:
    """Judges profiles against the engine, and against the circumstances of the moment."""

    def __init__(self, probe: EngineProbe, dry_runs: DryRuns, circumstances: Circumstances) -> None:
        self._probe = probe
        self._dry_runs = dry_runs
        self._now = circumstances

    async def check(
        self, profile: LaunchProfile, revision: int, *, machine: Machine | None = None, force: bool = False
    ) -> Checked:
        """The report, and the launch where nothing forbids it (`force` passes judgements).

        With a `machine` of another place nothing of this one counts: no other launches, no dry run of the engine.
        Raises EngineError when there is no engine to ask.
        """
        engine = await self._probe.facts()
        files = await asyncio.to_thread(read_profile_files, profile, engine, self._now.model_dirs)
        is_here = machine is None
        met = await self._now.meet(profile, engine, machine)
        others = met.others
        case = self._case(profile, files, met)
        resolved = resolve(case)
        rpc = tuple(self._now.rpc) if _may_use_rpc(profile) else ()
        own_flags = launch_flags(profile, resolved, files.paths(profile), rpc=rpc)
        flags = (*own_flags, *files.extra)
        verdicts = [*judge(case), *judge_engine(case, own_flags), *notices(profile)]
        measured = await self._earlier(profile, revision, engine, resolved) if is_here else {}
        planner = planner_of(case, others.reserved, self._now.margin_bytes, measured)
        may_ask = is_here and files.target is not None and not blocking(verdicts, force=True)
        may_ask = may_ask and not (rpc and (others.holds_rpc or others.own_rpc))
        if rpc and others.holds_rpc:
            verdicts.append(rpc_held())
        planned, source, remarks = await self._plan(planner, flags, may_ask=may_ask)
        verdicts += [*remarks, *judge_memory(case, planned, planner.plan)]
        verdicts = with_computed_fixes(verdicts, case, planned, planner.plan)
        report = report_of(case, resolved, flags, planned, source, verdicts)
        if files.target is None or blocking(verdicts, force=force):
            return Checked(report)
        return Checked(report, Launch(profile, revision, met.engine, flags, resolved, report))

    def _case(self, profile: LaunchProfile, files: ProfileFiles, met: Met) -> LaunchCase:
        return LaunchCase(
            profile=profile,
            machine=met.machine,
            engine=met.engine,
            target=files.target,
            draft=files.draft,
            projector=files.projector,
            unreadable=files.problems,
            claims=self._now.claims(profile),
            first_different_token=files.first_different_token,
        )

    async def _earlier(
        self, profile: LaunchProfile, revision: int, engine: EngineFacts, resolved: ResolvedLaunch
    ) -> Measured:
        return await asyncio.to_thread(self._now.measured, profile.id, revision, engine.build, resolved.device_set)

    async def _plan(
        self, planner: Planner, flags: tuple[str, ...], *, may_ask: bool
    ) -> tuple[PlacementPlan, str, list[Finding]]:
        """The plan, where its figures come from, and what the engine had to say."""
        if not may_ask:
            return planner.plan(), "analytic", []
        case = planner.case
        outcome = await self._dry_runs.witness(case.engine, flags, case.machine.devices, case.profile.env)
        if isinstance(outcome, Witness):
            planned, disagreements = planner.witnessed(outcome)
            for found in disagreements:
                _log.warning("profile %s: %s", case.profile.id, found.message)
            return planned, "engine", disagreements
        if isinstance(outcome, Refusal):
            return planner.plan(), "analytic", [engine_refuses(outcome)]
        if outcome.reason == "engine-embedded":
            return planner.plan(), "analytic", []
        return planner.plan(), "analytic", [not_witnessed(outcome)]


def _may_use_rpc(profile: LaunchProfile) -> bool:
    """Whether a device of this launch may be an RPC server: one that is not used is not to be kept busy."""
    devices, draft = profile.placement.devices, profile.speculation.draft
    named = [*(devices or ()), *([draft.device] if draft and draft.device else [])]
    return devices is None or any(name.startswith("RPC") for name in named)
