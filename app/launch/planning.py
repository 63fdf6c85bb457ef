"""The plan of one launch: the analytic model, corrected by the engine's own dry run where there is one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from app.findings import Finding
from app.launch.reconcile import HOST, reconcile
from app.launch.witness import Witness
from app.llama_server.memory_options import memory_options
from app.placement.budgets import TERMS, PlacementPlan
from app.placement.calibration import Measured, calibrated
from app.placement.case import LaunchCase
from app.placement.options import EngineOptions
from app.placement.plan import PlannedModel, plan, planned_model
from app.placement.resolve import resolve
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes plans of variations of one case; the headers are looked through once.

    `measured` are bytes of an earlier launch of the same profile, build and devices.
    """

    case: LaunchCase
    reservations: Mapping[str, int]
    options: Callable[[LaunchProfile], EngineOptions]
    margin_bytes: int
    target: PlannedModel | None
    draft: PlannedModel | None
    measured: Measured = field(default_factory=dict)

    def plan(self, profile: LaunchProfile | None = None, *, is_dry_run: bool = False) -> PlacementPlan:
        """The plan of the case, or of the case with another profile on the same files."""
        planned = self._estimate(profile, is_dry_run=is_dry_run)
        # What was measured is of this profile; a variation of it shares no more than the order of magnitude.
        return calibrated(planned, self.measured) if profile is None and not is_dry_run else planned

    def _estimate(self, profile: LaunchProfile | None = None, *, is_dry_run: bool = False) -> PlacementPlan:
        case = self.case if profile is None else replace(self.case, profile=profile)
        return plan(
            case,
            resolve(case),
            self.reservations,
            options=self.options(case.profile),
            margin_bytes=self.margin_bytes,
            target=self.target,
            draft=self.draft if case.profile.speculation.draft is not None else None,
            projector=self.case.projector,
            is_dry_run=is_dry_run,
        )

    def witnessed(self, witness: Witness) -> tuple[PlacementPlan, list[Finding]]:
        """The plan with the engine's figures in it, and what the two disagree on."""
        planned, shown = self._estimate(), self._estimate(is_dry_run=True)
        reconciled = reconcile(_table(planned), witness, excess_compute_bytes=_excess(planned, shown))
        return calibrated(_with_table(planned, reconciled.table), self.measured), list(reconciled.findings)


def planner_of(
    case: LaunchCase, reservations: Mapping[str, int], margin_bytes: int, measured: Measured | None = None
) -> Planner:
    """The planner of a case; looks through the headers of its models."""
    return Planner(
        case=case,
        reservations=reservations,
        options=lambda profile: memory_options(profile.extra_args, case.engine.flags),
        margin_bytes=margin_bytes,
        target=planned_model(case.target) if case.target else None,
        draft=planned_model(case.draft) if case.draft else None,
        measured=measured or {},
    )


def _table(planned: PlacementPlan) -> dict[str, Mapping[str, int]]:
    return {**{device.name: device.terms for device in planned.devices}, HOST: planned.host.terms}


def _excess(planned: PlacementPlan, shown: PlacementPlan) -> dict[str, int]:
    """What the dry run of the engine is known to count more of the target's compute buffers than a load takes."""
    load, dry = _table(planned), _table(shown)
    return {name: dry[name]["compute"] - load[name]["compute"] for name in load if name in dry}


def _with_table(planned: PlacementPlan, table: Mapping[str, Mapping[str, int]]) -> PlacementPlan:
    def settled(name: str) -> dict[str, int]:
        return {term: table[name].get(term, 0) for term in TERMS}

    host_terms = settled(HOST)
    weights_bytes = sum(host_terms[term] for term in ("weights", "draft_weights", "projector"))
    devices = {device.name: settled(device.name) for device in planned.devices}
    return planned.with_terms(devices, host_terms, min(planned.host.mapped_bytes, weights_bytes))
