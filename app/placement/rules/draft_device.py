"""Rules on where the draft model lives. Without the target's header it is not known where its output is."""

from app import findings
from app.findings import Finding, Fix
from app.placement.case import LaunchCase
from app.placement.places import Places, borrows_from_target, places_of


def draft_device_unset(case: LaunchCase) -> Finding | None:
    """On several devices an open draft device is a decision that the profile leaves to others."""
    draft = case.profile.speculation.draft
    places = places_of(case)
    if draft is None or not places.has_draft or draft.device is not None or len(places.devices) < 2:
        return None
    if places.draft_device is None or case.target is None:
        return None
    return findings.warning(
        "draft-device-unset",
        "The profile names no device for the draft model. By itself the engine divides a draft as it divides the "
        f"target; this launch puts it whole on {places.draft_device}, where the target's output layer is now. With "
        "another split that is another device.",
        expected="speculation.draft.device",
        observed=f"no device, {len(places.devices)} to choose from",
        evidence="the profile",
        fixes=[_move_to(places.draft_device)],
    )


def draft_not_with_output(case: LaunchCase) -> Finding | None:
    """A drafter that borrows the target's output tensor must run where that tensor is; elsewhere the engine aborts."""
    places = places_of(case)
    if case.draft is None or case.target is None or not places.has_draft or not borrows_from_target(case.draft):
        return None
    if places.output is None or places.is_shared or places.draft_device == places.output:
        return None
    lacking = [
        name
        for name, is_there in (("embeddings", case.draft.has_own_embeddings), ("output head", case.draft.has_own_head))
        if not is_there
    ]
    at = places.draft_device or "the host"
    return findings.error(
        "draft-not-with-output",
        f"{case.draft.path.name} has no {' and no '.join(lacking)} of its own and computes with the target's, on "
        f"{places.output}; from {at} it cannot reach that, and the engine would abort while loading.",
        expected=f"the draft on {places.output}, or a draft with its own embeddings and head",
        observed=f"the draft on {at}",
        evidence="tensor names in the drafter's header; the split of the target's layers",
        fixes=[_move_to(places.output)],
    )


def draft_apart(case: LaunchCase) -> Finding | None:
    """A drafter away from the output layer works, and sends its input over the bus at every step."""
    places = places_of(case)
    if case.draft is None or not places.has_draft or borrows_from_target(case.draft) or places.is_shared:
        return None
    if case.target is None or places.output is None or places.draft_device in (None, places.output):
        return None
    # Which link joins the two is not known here: a Machine names devices, not how they are connected.
    return findings.warning(
        "draft-apart",
        f"The draft is on {places.draft_device} and the target's output layer on {places.output}: every step crosses "
        "the link between them.",
        expected=f"the draft on {places.output}",
        observed=f"the draft on {places.draft_device}",
        evidence="speculation.draft.device; the split of the target's layers",
        # A tensor_split that makes room there needs the bytes of both: the memory plan offers it.
        fixes=[_move_to(places.output)],
    )


def draft_on_host(case: LaunchCase) -> Finding | None:
    """A drafter on the host is waited for at every step. Where everything is on the host there is nothing to say."""
    draft = case.profile.speculation.draft
    places = places_of(case)
    if draft is None or case.target is None or not places.has_draft:
        return None
    if places.is_all_on_host or places.is_draft_whole:
        return None
    # That it only fits in host memory is for the memory plan to find.
    observed = _on_host(places, draft.gpu_layers)
    target_device = places.output or (places.devices or (places.draft_device,))[0]
    device = places.draft_device or target_device
    patch = {"speculation": {"draft": {"device": device, "gpu_layers": "all"}}}
    return findings.error(
        "draft-on-host",
        f"{observed[0].upper()}{observed[1:]}, while the launch has devices: drafting then waits for the host at every "
        "step. 1 to 2 tokens per second instead of 30 to 40 were reported for this.",
        expected="all layers of the draft on a device",
        observed=observed,
        evidence="speculation.draft.device, speculation.draft.gpu_layers",
        overridable=True,
        fixes=[Fix(f"Put the whole draft on {device}", patch)],
    )


def _on_host(places: Places, gpu_layers: int | str) -> str:
    if places.draft_device is None:
        return "the draft is on the host"
    if gpu_layers == 0:
        return f"none of the draft's layers are on {places.draft_device}"
    return f"only {gpu_layers} of the draft's layers are on {places.draft_device}"


def _move_to(device: str) -> Fix:
    return Fix(f"Put the draft on {device}", {"speculation": {"draft": {"device": device}}})


RULES = (draft_device_unset, draft_not_with_output, draft_apart, draft_on_host)
