"""Fixes of rules that know no bytes, once there is a plan: those that have no room are given it, or go."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.findings import Finding, Fix
from app.placement.amounts import counted
from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase
from app.placement.fixes import DeviceFixes
from app.placement.trials import Replan, Trials

_MOVES_THE_DRAFT = frozenset({"draft-apart", "draft-not-with-output", "draft-on-host", "draft-device-unset"})
_DECIDES_MEMORY = ("placement", "context", "speculation", "projector", "target")


def with_computed_fixes(
    verdicts: Sequence[Finding], case: LaunchCase, planned: PlacementPlan, replan: Replan
) -> list[Finding]:
    """The same findings. A split is computed where one was left open; a draft that moves gets a split with room for it.

    Where the launch fits as it is, no fix is left that would not.
    """
    if case.target is None:
        return list(verdicts)
    trials = Trials(case, planned, replan)
    return [replace(found, fixes=list(_fixes(found, trials))) if found.fixes else found for found in verdicts]


def _fixes(found: Finding, trials: Trials) -> Iterator[Fix]:
    if found.rule == "split-implicit":
        split = DeviceFixes(trials, "").split()
        if split is not None and split.trial.fits:
            yield Fix(f"The split whose busiest device has the most room: {split.text}", split.trial.patch)
            return
    for fix in found.fixes:
        if not any(part in fix.patch for part in _DECIDES_MEMORY):
            yield fix
            continue
        trial = trials.of(fix.patch)
        if trial.fits:
            yield replace(fix, patch=trial.patch)
        elif found.rule in _MOVES_THE_DRAFT and (roomy := _with_room(fix, trials)) is not None:
            yield roomy
        elif not trials.now.fits and trial.room_bytes >= trials.now.room_bytes:
            yield fix


def _with_room(fix: Fix, trials: Trials) -> Fix | None:
    """The draft where it should be, and the target's layers, or experts, out of its way."""
    search, target = DeviceFixes(trials, ""), trials.case.target
    split = search.split(fix.patch)
    if split is not None and split.trial.fits and not trials.breaks_a_rule(split.trial.profile):
        return Fix(f"{fix.description}, and divide the layers {split.text}", split.trial.patch)
    moved = trials.case.profile.placement.cpu_moe_layers
    if target is None or not target.expert_count or moved == "all":
        return None
    moving = search.moved_beside(fix.patch)
    if moving is None or trials.breaks_a_rule(moving[1].profile):
        return None
    count, trial, how = moving
    return Fix(f"{fix.description}, and keep the experts of {counted(count, 'layer')} on the host{how}", trial.patch)
