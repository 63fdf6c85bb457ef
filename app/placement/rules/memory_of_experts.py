"""Rules that weigh experts: which device they leave full, and whether a draft gave way before them."""

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile
from app.placement.amounts import counted, mib
from app.placement.budgets import DeviceBudget
from app.placement.fixes import DeviceFixes
from app.placement.places import places_of
from app.placement.trials import Trial, Trials

# The last device is full within a tenth; the first has a quarter of its room more to spare than the last.
_FULL_SHARE = 10
_IDLE_SHARE = 4


def imbalance(trials: Trials) -> Finding | None:
    """Experts leave from the first layer on, so from the first device; the split was made for the whole model."""
    placement = trials.case.profile.placement
    if not placement.cpu_moe_layers or trials.planned.impossible or not _has_experts(trials.case.target):
        return None
    used = [budget for budget in trials.planned.devices if budget.name in _with_layers(trials)]
    if len(used) < 2 or not all(budget.is_known for budget in used):
        return None
    first, last = used[0], used[-1]
    if not _is_full(last) or first.headroom_bytes - last.headroom_bytes < _usable_bytes(first) // _IDLE_SHARE:
        return None
    split = DeviceFixes(trials, last.name).split()
    if split is None or split.trial.room_bytes <= trials.now.room_bytes:
        return None
    return findings.warning(
        "expert-offload-imbalance",
        f"cpu_moe_layers {placement.cpu_moe_layers} takes the experts of the first layers, which are on {first.name}: "
        f"it has {mib(first.headroom_bytes)} left, and {last.name} {_left_text(last)}.",
        expected=f"a split whose busiest device has the most room: {split.text}",
        observed=f"{first.name} {mib(first.required_bytes)}, {last.name} {mib(last.required_bytes)}",
        evidence="the plan; placement.cpu_moe_layers, placement.tensor_split",
        fixes=[
            Fix(
                f"Divide the layers {split.text}",
                split.trial.patch,
                max(0, last.required_bytes - _required_bytes(split.trial, last.name)),
            )
        ]
        if split.trial.fits
        else (),
    )


def before_draft(trials: Trials) -> Finding | None:
    """Experts on the host cost some speed, a draft on the host all of its gain."""
    case = trials.case
    places, draft = places_of(case), case.profile.speculation.draft
    if draft is None or not places.has_draft or places.is_draft_whole or not _has_experts(case.target):
        return None
    on_device = _experts_on_devices(trials)
    if not places.devices or not on_device:
        return None
    device = places.output or places.draft_device or places.devices[-1]
    where = "the host" if not places.has_draft_layers_on_device else f"{places.draft_device} only in part"
    return findings.warning(
        "expert-before-draft",
        f"The draft is on {where}, while the experts of {counted(on_device, 'layer')} are on devices: let experts give "
        "way, not the draft.",
        expected=f"the whole draft on {device}",
        observed=f"the draft on {where}, experts of {counted(on_device, 'layer')} on devices",
        evidence="the plan; speculation.draft, placement.cpu_moe_layers",
        fixes=_making_room(trials, device),
    )


def _making_room(trials: Trials, device: str) -> list[Fix]:
    """The whole draft on the device, with the fewest experts moved for it."""
    whole = {"speculation": {"draft": {"device": device, "gpu_layers": "all"}}}
    text, trial = f"Put the whole draft on {device}", trials.of(whole)
    if not trial.fits:
        found = DeviceFixes(trials, device).moved_beside(whole)
        if found is None:
            return []
        count, trial, how = found
        text += f", and keep the experts of {counted(count, 'layer')} on the host{how}"
    return [] if trials.breaks_a_rule(trial.profile) else [Fix(text, trial.patch)]


def _has_experts(target: ModelFile | None) -> bool:
    return target is not None and target.expert_count > 0


def _with_layers(trials: Trials) -> set[str]:
    return {span.device for span in trials.planned.layers}


def _experts_on_devices(trials: Trials) -> int:
    names = {budget.name for budget in trials.planned.devices}
    spans = [span for span in trials.planned.layers if span.device in names]
    return sum(span.last - span.first + 1 - span.experts_on_host for span in spans)


def _usable_bytes(budget: DeviceBudget) -> int:
    return max(0, budget.headroom_bytes + budget.required_bytes)


def _is_full(budget: DeviceBudget) -> bool:
    return budget.headroom_bytes * _FULL_SHARE < _usable_bytes(budget)


def _left_text(budget: DeviceBudget) -> str:
    left = budget.headroom_bytes
    return f"lacks {mib(-left)}" if left < 0 else f"has {mib(left)}"


def _required_bytes(trial: Trial, name: str) -> int:
    budget = trial.planned.device(name)
    return budget.required_bytes if budget else 0
