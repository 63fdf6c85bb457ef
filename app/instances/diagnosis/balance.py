"""Experts on the host, one device nearly full and another with room: the split was made for the whole model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app import findings
from app.findings import Finding, Fix
from app.instances.diagnosis.changes import changing
from app.instances.diagnosis.layouts import experts_on_host, layers_by_device
from app.instances.evidence import Evidence
from app.placement.amounts import counted, mib

# As before a launch: full within a tenth of its memory, and another with a quarter of its own more to spare.
FULL_SHARE: Final = 0.10
SPARE_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True)
class _Room:
    """What a device has, by the driver."""

    name: str
    free_bytes: int
    total_bytes: int


def expert_offload_imbalance(evidence: Evidence) -> Finding | None:
    """Experts leave from the first layer on, so from the first device; the others stay as full as they were."""
    launch = evidence.launch
    rooms = [room for name in layers_by_device(launch) if (room := _room(evidence, name)) is not None]
    if len(rooms) < 2 or not experts_on_host(launch):
        return None
    fullest = min(rooms, key=lambda room: room.free_bytes / room.total_bytes)
    widest = max(rooms, key=lambda room: room.free_bytes - SPARE_SHARE * room.total_bytes)
    spare_bytes = widest.free_bytes - fullest.free_bytes
    is_full = fullest.free_bytes < FULL_SHARE * fullest.total_bytes
    if not is_full or spare_bytes < SPARE_SHARE * widest.total_bytes:
        return None
    return findings.warning(
        "expert-offload-imbalance",
        f"{fullest.name} has {mib(fullest.free_bytes)} left and {widest.name} {mib(widest.free_bytes)}, while the "
        f"experts of {counted(experts_on_host(launch), 'layer')} are on the host: they are computed slowly beside "
        "memory that is free.",
        expected=f"devices that are full alike, {fullest.name} with at least a tenth free",
        observed=f"{mib(spare_bytes)} more room on {widest.name} than on {fullest.name}",
        evidence="the driver's free memory; the plan's layers",
        fixes=changing(launch.profile, _moves(evidence, fullest.name, widest.name, spare_bytes)),
    )


def _moves(evidence: Evidence, fullest: str, widest: str, spare_bytes: int) -> list[Fix]:
    """Half of the difference in layers from one to the other. An estimate: the check that follows knows it exactly."""
    advice = Fix("Then experts of fewer layers on the host: POST /profiles/{id}/suggest finds how many fit")
    profile, counts = evidence.launch.profile, layers_by_device(evidence.launch)
    layer_bytes = _layer_bytes(evidence, fullest, counts)
    moved = min(spare_bytes // 2 // layer_bytes, counts[fullest] - 1) if layer_bytes else 0
    if profile.placement.split_mode != "layer" or moved < 1:
        return [advice]
    counts |= {fullest: counts[fullest] - moved, widest: counts[widest] + moved}
    # The output counts as one more layer, and is on the last of them.
    shares = [n_layers + (place == len(counts) - 1) for place, n_layers in enumerate(counts.values())]
    return [
        Fix(
            f"Divide the layers {','.join(map(str, shares))}",
            {"placement": {"devices": list(counts), "tensor_split": shares}},
            moved * layer_bytes,
        ),
        advice,
    ]


def _layer_bytes(evidence: Evidence, name: str, counts: Mapping[str, int]) -> int:
    """About what one layer takes there."""
    terms = next(device["terms"] for device in evidence.launch.report.devices if device["name"] == name)
    return int(terms["weights"] + terms["kv_cache"] + terms["recurrent_state"]) // counts[name]


def _room(evidence: Evidence, name: str) -> _Room | None:
    look = next(reversed(evidence.devices.get(name, ())), None)
    if look is None or look.free_bytes is None or not look.total_bytes:
        return None
    return _Room(name, look.free_bytes, look.total_bytes)


RULES = (expert_offload_imbalance,)
