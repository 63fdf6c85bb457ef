"""Rules that weigh drafts: where they have room, and what they would take in another type."""

from app import findings
from app.findings import Finding, Fix
from app.placement.amounts import mib
from app.placement.draft_precision import is_full_precision, saved_bytes
from app.placement.fixes import DeviceFixes
from app.placement.places import borrows_from_target, places_of
from app.placement.rules.experts import experts_on_host
from app.placement.trials import Trials

_DRAFT_TERMS = ("draft_weights", "draft_kv_cache", "draft_compute")
_FULL_SHARE = 10
_OFF_DEVICE = {"speculation": {"draft": {"device": "none"}}}


def only_on_host(trials: Trials) -> Finding | None:
    """The launch fits with the draft on the host, and with the draft on no device that it may use."""
    case, places = trials.case, places_of(trials.case)
    draft, device = case.profile.speculation.draft, places.draft_device
    if draft is None or device is None or not places.has_draft_layers_on_device or trials.now.fits_devices:
        return None
    if not trials.of(_OFF_DEVICE).fits_devices:
        return None
    others = [] if case.draft is not None and borrows_from_target(case.draft) else case.machine.device_names
    for name in others:
        if name != device and trials.of({"speculation": {"draft": {"device": name}}}).fits_devices:
            return None
    budget = trials.planned.device(device)
    needed = sum(budget.terms[term] for term in _DRAFT_TERMS) if budget else 0
    left = budget.headroom_bytes + needed if budget else 0
    return findings.error(
        "draft-on-host",
        f"Beside the target as it is placed, only the host has room for the draft: it takes {mib(needed)}, and "
        f"{device} has {mib(max(0, left))} left. On the host drafting waits at every step: 1 to 2 tokens per second "
        "instead of 30 to 40 were reported for this.",
        expected="room for the whole draft on a device",
        observed=f"{device}: {mib(max(0, left))} for {mib(needed)}",
        evidence="the plan",
        overridable=True,
        fixes=DeviceFixes(trials, device).keeping_the_draft(),
    )


def precision(trials: Trials) -> Finding | None:
    """Drafts are checked by the target: what finer weights gain in acceptance they rarely pay for in memory."""
    case = trials.case
    if not is_full_precision(case) or case.draft is None:
        return None
    full = [
        budget.name
        for budget in trials.planned.devices
        if budget.is_known and budget.required_bytes and _is_nearly_full(budget.headroom_bytes, budget.required_bytes)
    ]
    if not full and not experts_on_host(case):
        return None
    device = places_of(case).draft_device
    saved = saved_bytes(case, trials.planned, device) if device else 0
    why = f"{', '.join(full)} nearly full" if full else "experts of the target on the host"
    less = f"would take {mib(saved)} less there" if saved else "takes about half"
    return findings.warning(
        "draft-precision",
        f"{case.draft.path.name} is in {case.draft.largest_type}, with {why}: the same draft in Q8_0 {less}, and works "
        "faster.",
        expected="a draft in Q8_0",
        observed=f"{case.draft.largest_type}, {why}",
        evidence="tensor types in the drafter's header; the plan",
        fixes=[Fix(f"Look for {case.draft.path.name} in Q8_0", {}, saved)],
    )


def _is_nearly_full(headroom_bytes: int, required_bytes: int) -> bool:
    return headroom_bytes * _FULL_SHARE < headroom_bytes + required_bytes
