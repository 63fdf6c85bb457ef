"""plan(): where every byte of a launch will be, before it is launched."""

from collections.abc import Mapping

from app.inventory.models import ModelFile
from app.placement.assembly import Assembly, PlannedModel, planned_model, unknowns
from app.placement.budgets import HOST_NAME, TERMS, DeviceBudget, HostBudget, LayerSpan, PlacementPlan
from app.placement.case import LaunchCase
from app.placement.ledger import Ledger
from app.placement.options import EngineOptions
from app.placement.resolve import ResolvedLaunch

__all__ = [
    "DEFAULT_MARGIN_BYTES",
    "HOST_NAME",
    "TERMS",
    "DeviceBudget",
    "EngineOptions",
    "HostBudget",
    "LayerSpan",
    "PlacementPlan",
    "PlannedModel",
    "plan",
    "planned_model",
]

# The compute buffers of the model are within some tens of MiB of the engine's, and drivers fragment.
DEFAULT_MARGIN_BYTES = 512 << 20
_ENGINE_DEFAULTS = EngineOptions()


def plan(
    case: LaunchCase,
    resolved: ResolvedLaunch,
    reservations: Mapping[str, int] | None = None,
    *,
    options: EngineOptions = _ENGINE_DEFAULTS,
    margin_bytes: int = DEFAULT_MARGIN_BYTES,
    target: PlannedModel | None = None,
    draft: PlannedModel | None = None,
    projector: ModelFile | None = None,
    is_dry_run: bool = False,
) -> PlacementPlan:
    """Bytes by device and on the host for one launch.

    `reservations` are bytes promised to others, by device name (the host's under `host`). The profile's own margin goes
    before `margin_bytes`. `target` and `draft` spare reading the headers again where many plans are made; `is_dry_run`
    gives what the engine's own dry run prints instead of what a load takes. A case without a readable target gives an
    empty plan that says so.
    """
    ledger = Ledger(case.machine, reservations or {})
    said = case.profile.placement.margin_bytes
    margin = margin_bytes if said is None else said
    if case.target is None:
        return ledger.plan(margin, partial=["the target model cannot be read: nothing is planned"])
    known = target or planned_model(case.target)
    launch = Assembly(case, resolved, options, known, ledger, is_dry_run=is_dry_run)
    launch.place_target()
    partial = [*unknowns(case, options, known.shape), *launch.unproven(), *launch.place_drafter(draft)]
    launch.place_extras(projector)
    return ledger.plan(
        margin, launch.spans(), launch.output_device, tuple(dict.fromkeys(partial)), tuple(launch.impossible())
    )
