"""Where everything really is, against where the profile and the plan put it."""

from collections.abc import Mapping
from typing import Any, Final

from app import findings
from app.findings import Finding, Fix, Severity
from app.instances.diagnosis.changes import WITHOUT_SPECULATION, changing
from app.instances.diagnosis.layouts import layers_on
from app.instances.evidence import Evidence, MeasuredPlacement
from app.launch.report import predicted_memory
from app.placement.amounts import counted, mib
from app.placement.budgets import HOST_NAME
from app.placement.resolve import NO_DEVICE

# Of what was planned for devices: less is rounding of the engine's figures, and its padding of buffers.
ASTRAY_SHARE: Final = 0.10
_DRAFT_TERMS: Final = ("draft_weights", "draft_kv_cache")
Memory = Mapping[str, Mapping[str, int]]


def draft_on_host(evidence: Evidence) -> Finding | None:
    """A draft that was planned on a device and is, whole or in part, on the host. By layers where those are told."""
    planned_on, measured = _draft_device(evidence), evidence.measured
    layers = evidence.launch.resolved.draft_gpu_layers
    if planned_on is None or layers == 0 or measured is None:
        return None
    if measured.draft_layers:
        there, total = measured.draft_layers.get(HOST_NAME, 0), sum(measured.draft_layers.values())
        # The output counts as one more, and is the first to leave the host.
        planned = max(0, total + 1 - layers) if isinstance(layers, int) else 0
        is_astray, observed = there > planned, f"{there} of {total} layers of the draft on the host"
        expected = f"{planned} of them on the host, the others on {planned_on}"
    else:
        is_astray, on_host, meant = _moved(_predicted(evidence), measured, _DRAFT_TERMS)
        expected = f"{mib(meant)} of the draft on {planned_on}"
        observed = f"{mib(on_host)} of the draft more than planned on the host"
    if not is_astray:
        return None
    return findings.warning(
        "draft-on-host",
        f"The draft was planned on {planned_on}, and {observed}: drafting waits for the host at every step. 1 to 2 "
        "tokens per second instead of 30 to 40 were reported for this.",
        expected=expected,
        observed=observed,
        evidence="the engine's output; the plan of this launch",
        fixes=changing(
            evidence.launch.profile,
            [
                Fix(
                    f"Put the whole draft on {planned_on}",
                    {
                        "speculation": {"draft": {"device": planned_on, "gpu_layers": "all"}},
                        "placement": {"fit": False},
                    },
                ),
                Fix("No speculation until the draft is on a device", WITHOUT_SPECULATION),
            ],
        ),
    )


def draft_apart(evidence: Evidence) -> Finding | None:
    """A draft on another device than the target's output layer: every step crosses the link between them.

    Info where the profile says so itself: the check has warned of it.
    """
    output, planned_on = evidence.launch.report.resolved.get("output_device"), _draft_device(evidence)
    is_shared = evidence.launch.profile.placement.split_mode == "tensor"
    if planned_on is None or output in (None, HOST_NAME, NO_DEVICE) or evidence.measured is None or is_shared:
        return None
    by_device = {
        name: sum(terms.get(term, 0) for term in _DRAFT_TERMS)
        for name, terms in evidence.measured.memory.items()
        if name != HOST_NAME
    }
    apart = {name: n_bytes for name, n_bytes in by_device.items() if name != output and n_bytes}
    if sum(apart.values()) <= ASTRAY_SHARE * sum(by_device.values()):
        return None
    where = ", ".join(f"{mib(n_bytes)} on {name}" for name, n_bytes in apart.items())
    is_asked = planned_on != output and set(apart) == {planned_on}
    return Finding(
        "draft-apart",
        Severity.INFO if is_asked else Severity.WARNING,
        f"Of the draft there are {where}, and the target's output layer is on {output}: every step crosses the link "
        f"between them.{' The profile asks for it.' if is_asked else ''}",
        expected=f"the draft on {output}",
        observed=where,
        evidence="the engine's output; the plan of this launch",
        fixes=changing(
            evidence.launch.profile,
            [Fix(f"Put the draft on {output}", {"speculation": {"draft": {"device": output}}})],
        ),
    )


def layers_on_host(evidence: Evidence) -> Finding | None:
    """More of the target's layers on the host than planned. Where layers are not told, by bytes of its weights."""
    measured, planned_layers = evidence.measured, _planned_host_layers(evidence)
    if measured is None or planned_layers is None:
        return None
    if measured.layers:
        there = measured.layers.get(HOST_NAME, 0)
        is_astray, observed = there > planned_layers, counted(there, "layer") + " on the host"
    else:
        is_astray, on_host, _ = _moved(_predicted(evidence), measured, ("weights",))
        observed = f"{mib(on_host)} of weights more than planned on the host"
    if not is_astray:
        return None
    profile = evidence.launch.profile
    # `auto` and fitting let the engine decide by the memory that was free at that moment.
    layers = "all" if profile.placement.gpu_layers == "auto" else profile.placement.gpu_layers
    return findings.warning(
        "layers-on-host",
        f"Found {observed}, where the plan has {counted(planned_layers, 'layer')}: each token waits for the host's "
        "memory in those, which has a tenth of a device's bandwidth or less.",
        expected=f"{counted(planned_layers, 'layer')} on the host",
        observed=observed,
        evidence="the engine's output; the plan of this launch",
        fixes=changing(profile, [Fix("Say what is planned, so that it is not fitted", {"placement": _said(layers)})]),
    )


def _said(layers: int | str) -> dict[str, Any]:
    return {"fit": False, "gpu_layers": layers}


def _predicted(evidence: Evidence) -> Memory:
    return predicted_memory(evidence.launch.report)


def _moved(planned: Memory, measured: MeasuredPlacement, terms: tuple[str, ...]) -> tuple[bool, int, int]:
    """Whether bytes of these terms left the devices for the host, how many more are there, how many were meant not to.

    Both sides must show it: what is mapped from a file can look larger on the host than what is used of it.
    """

    def on_host(memory: Memory) -> int:
        return sum(memory.get(HOST_NAME, {}).get(term, 0) for term in terms)

    def on_devices(memory: Memory) -> int:
        return sum(each.get(term, 0) for name, each in memory.items() if name != HOST_NAME for term in terms)

    meant = on_devices(planned)
    more = on_host(measured.memory) - on_host(planned)
    fewer = meant - on_devices(measured.memory)
    return min(more, fewer) > ASTRAY_SHARE * meant, more, meant


def _draft_device(evidence: Evidence) -> str | None:
    """Where a draft model was planned; None on the host, and where there is none."""
    device = evidence.launch.resolved.draft_device
    return None if device == NO_DEVICE else device


def _planned_host_layers(evidence: Evidence) -> int | None:
    """Layers of the target that the plan has on the host; None where it knows no layers, or has all of them there."""
    spans = evidence.launch.report.layers
    if all(span["device"] == HOST_NAME for span in spans):
        return None
    return layers_on(evidence.launch, HOST_NAME)


RULES = (draft_on_host, draft_apart, layers_on_host)
