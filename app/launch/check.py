"""The check, read from top to bottom: files -> case -> findings -> flags -> plan -> report. A start executes it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.findings import Finding, blocking
from app.inventory.devices import Machine
from app.launch.circumstances import Circumstances, Met, OtherLaunches
from app.launch.dry_run import DryRuns
from app.launch.files import ProfileFiles, read_profile_files
from app.launch.notices import engine_refuses, not_witnessed, notices, rpc_held
from app.launch.planning import Planner, planner_of
from app.launch.report import Checked, Launch, PlacementReport, report_of
from app.launch.witness import Outcome, Refusal, Witness
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
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile

_log = logging.getLogger(__name__)


class LaunchCheck:
    """Judges profiles against the engine, and against the circumstances of the moment."""

    def __init__(self, probe: EngineProbe, dry_runs: DryRuns, circumstances: Circumstances) -> None:
        self._probe = probe
        self._dry_runs = dry_runs
        self._now = circumstances

    async def check(
        self,
        profile: LaunchProfile,
        revision: int,
        *,
        machine: Machine | None = None,
        force: bool = False,
        gone: frozenset[int] = frozenset(),
    ) -> Checked:
        """The report, and the launch where nothing forbids it (`force` passes judgements).

        `gone` are instances to be thought of as ended.
        With a `machine` of another place nothing of this one counts: no other launches, no dry run of the engine.
        Raises EngineError when there is no engine to ask.
        """
        engine = await self._probe.facts()
        files = await asyncio.to_thread(read_profile_files, profile, engine, self._now.model_dirs)
        is_here = machine is None
        met = await self._now.meet(profile, engine, machine, gone)
        question = _Question(self._case(profile, files, met), files, met.others, self._rpc(profile))
        # Rules, plans and the search for fixes work on values alone: a long one must not hold up what is relayed.
        draft = await asyncio.to_thread(self._drafted, question, revision if is_here else None)
        outcome = await self._witness(draft) if is_here and draft.may_ask else None
        report = await asyncio.to_thread(_judged, draft, outcome)
        if files.target is None or blocking(report.findings, force=force):
            return Checked(report)
        return Checked(report, Launch(profile, revision, met.engine, draft.flags, draft.resolved, report))

    def _case(self, profile: LaunchProfile, files: ProfileFiles, met: Met) -> LaunchCase:
        return LaunchCase(
            profile=profile,
            machine=met.machine,
            engine=met.engine,
            target=files.target,
            draft=files.draft,
            projector=files.projector,
            adapters=files.adapters,
            unreadable=files.problems,
            claims=self._now.claims(profile),
            first_different_token=files.first_different_token,
        )

    def _drafted(self, question: "_Question", revision: int | None) -> "_Draft":
        """All that needs no witness; `revision` is None on another machine, where nothing was measured."""
        case, files, others, rpc = question.case, question.files, question.others, question.rpc
        profile, resolved = case.profile, resolve(case)
        own_flags = launch_flags(profile, resolved, files.paths(profile), rpc=rpc)
        verdicts = [*judge(case), *judge_engine(case, own_flags), *notices()]
        may_ask = files.target is not None and not blocking(verdicts, force=True)
        may_ask = may_ask and not (rpc and (others.holds_rpc or others.own_rpc))
        if rpc and others.holds_rpc:
            verdicts.append(rpc_held())
        measured: Measured = {}
        if revision is not None:
            measured = self._now.measured(profile.id, revision, case.engine.build, resolved.device_set)
        planner = planner_of(_plannable(case, verdicts), others.reserved, self._now.margin_bytes, measured)
        return _Draft(resolved, (*own_flags, *files.extra), tuple(verdicts), planner, may_ask)

    async def _witness(self, draft: "_Draft") -> Outcome:
        case = draft.planner.case
        return await self._dry_runs.witness(case.engine, draft.flags, case.machine.devices, case.profile.env)

    def _rpc(self, profile: LaunchProfile) -> tuple[str, ...]:
        return tuple(self._now.rpc) if _may_use_rpc(profile) else ()


@dataclass(frozen=True, slots=True)
class _Question:
    """What is judged, and what it meets; `rpc` are the servers that the launch would be told of."""

    case: LaunchCase
    files: ProfileFiles
    others: OtherLaunches
    rpc: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A launch as far as it is known without bytes; `may_ask` whether the engine can be asked about it."""

    resolved: ResolvedLaunch
    flags: tuple[str, ...]
    verdicts: tuple[Finding, ...]
    planner: Planner
    may_ask: bool


def _judged(draft: _Draft, outcome: Outcome | None) -> PlacementReport:
    """The report: every byte placed, weighed, and fixes computed for what does not fit."""
    planner, case = draft.planner, draft.planner.case
    planned, source, remarks = _planned(planner, outcome)
    verdicts = [*draft.verdicts, *remarks, *judge_memory(case, planned, planner.plan)]
    verdicts = with_computed_fixes(verdicts, case, planned, planner.plan)
    return report_of(case, draft.resolved, draft.flags, planned, source, verdicts)


def _planned(planner: Planner, outcome: Outcome | None) -> tuple[PlacementPlan, str, list[Finding]]:
    """The plan, where its figures come from, and what the engine had to say."""
    if isinstance(outcome, Witness):
        planned, disagreements = planner.witnessed(outcome)
        for found in disagreements:
            _log.warning("profile %s: %s", planner.case.profile.id, found.message)
        return planned, "engine", disagreements
    if isinstance(outcome, Refusal):
        return planner.plan(), "analytic", [engine_refuses(outcome)]
    if outcome is None or outcome.reason == "engine-embedded":
        return planner.plan(), "analytic", []
    return planner.plan(), "analytic", [not_witnessed(outcome)]


def _plannable(case: LaunchCase, verdicts: Sequence[Finding]) -> LaunchCase:
    """The case without tensor overrides that are refused: a pattern among them may take for ever to look for."""
    for fix in (fix for found in verdicts if found.rule == "flag-value" for fix in found.fixes):
        if "override_tensor" in fix.patch.get("placement", {}):
            return replace(case, profile=parse_profile(merge_patch(document_of(case.profile), fix.patch)))
    return case


def _may_use_rpc(profile: LaunchProfile) -> bool:
    """Whether a device of this launch may be an RPC server: one that is not used is not to be kept busy."""
    devices, draft = profile.placement.devices, profile.speculation.draft
    named = [*(devices or ()), *([draft.device] if draft and draft.device else [])]
    return devices is None or any(name.startswith("RPC") for name in named)
