"""What the devices are doing: starved, unevenly filled, or slowed by heat and power."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from app.findings import Finding, Fix, Severity
from app.instances.diagnosis.changes import changing
from app.instances.diagnosis.layouts import host_work, main_device
from app.instances.evidence import DeviceSample, Evidence
from app.placement.cache_types import QUANTISED_TYPES

# A device that decodes is busy nearly always, an idle one never; a starved one is seen in both states in turn.
HIGH_RATE, LOW_RATE = 0.70, 0.10
# Of the looks: rarer than that is an exception.
STATE_SHARE: Final = 0.20
SWINGS_LEAST: Final = 4
LOOKS_LEAST: Final = 10
# 60 to 80 % of the cores were reported; a thread that only polls the device is one core, at most half of two.
BUSY_CORES_SHARE: Final = 0.60
CORES_LEAST: Final = 2
# Now, not ten minutes ago; a single look can meet a spike.
LIMITED_SECONDS: Final = 60.0
LIMITED_SHARE: Final = 0.50
LIMITED_LOOKS_LEAST: Final = 3
_HEAT_AND_FAULT: Final = (
    "software-thermal-slowdown",
    "hardware-thermal-slowdown",
    "hardware-slowdown",
    "power-brake",
)
_POWER_CAP: Final = "software-power-cap"


def device_starved(evidence: Evidence) -> Finding | None:
    """The main device swings between busy and idle over seconds while the process keeps most cores busy.

    Part of the work then runs on the host, and the device waits for it. Only looks at such moments count, so neither
    pauses between requests nor prompts that the device reads alone do. Info where the plan puts work on the host.
    """
    main, cores = main_device(evidence.launch), evidence.physical_cores or 0
    # A load keeps cores busy too.
    if main is None or cores < CORES_LEAST or not evidence.tally.requests:
        return None
    looks = [pair for pair in _together(evidence, main) if pair[1] >= BUSY_CORES_SHARE * cores]
    rates = [rate for rate, _ in looks]
    if len(looks) < LOOKS_LEAST or not _swings(rates):
        return None
    planned = host_work(evidence.launch)
    busy_cores = fmean(busy for _, busy in looks)
    why = f"The plan has {planned} on the host." if planned else "Nothing of it was planned on the host."
    return Finding(
        "device-starved",
        Severity.INFO if planned else Severity.WARNING,
        f"{main} swings between {max(rates):.0%} and {min(rates):.0%} busy while {busy_cores / cores:.0%} of the cores "
        f"work: part of the work runs on the host, and the device waits for it. {why}",
        expected=f"a device that is busy while {BUSY_CORES_SHARE:.0%} of the cores or more are",
        observed=f"{_moves(rates)} swings, {busy_cores:.1f} of {cores} cores",
        evidence=f"{len(looks)} looks at driver and process with that many cores busy",
        fixes=changing(evidence.launch.profile, _off_the_host(evidence)),
    )


def _together(evidence: Evidence, name: str) -> Iterator[tuple[float, float]]:
    """How busy a device was at each look, and the fewest cores of the process in the intervals around it."""
    samples = [sample for sample in evidence.processes if sample.busy_cores is not None]
    ends = [sample.at_seconds for sample in samples]
    for look in evidence.devices.get(name, ()):
        after = bisect_left(ends, look.at_seconds)
        # The two clocks may be a look apart, and where work begins or ends one of them is late.
        if look.busy_rate is not None and 0 < after < len(samples) - 1:
            yield look.busy_rate, min(sample.busy_cores or 0.0 for sample in samples[after - 1 : after + 2])


def _swings(rates: Sequence[float]) -> bool:
    high = sum(rate >= HIGH_RATE for rate in rates)
    low = sum(rate <= LOW_RATE for rate in rates)
    return min(high, low) >= STATE_SHARE * len(rates) and _moves(rates) >= SWINGS_LEAST


def _moves(rates: Sequence[float]) -> int:
    """How often it went from one state to the other; what lies between belongs to the state before."""
    states = [rate >= HIGH_RATE for rate in rates if rate >= HIGH_RATE or rate <= LOW_RATE]
    return sum(before != after for before, after in pairwise(states))


def _off_the_host(evidence: Evidence) -> list[Fix]:
    profile = evidence.launch.profile
    context, placement = profile.context, profile.placement
    fixes = []
    if not {context.k_type, context.v_type}.isdisjoint(QUANTISED_TYPES):
        # Not every device has kernels for every pair of types; what it lacks is computed on the host.
        fixes.append(Fix("Keep the KV cache in f16", {"context": {"k_type": "f16", "v_type": "f16"}}))
    fixes.append(Fix("All layers on devices", {"placement": {"gpu_layers": "all"}}))
    if placement.cpu_moe_layers:
        fixes.append(Fix("Experts of fewer layers on the host: POST /profiles/{id}/suggest finds how many fit"))
    kept = [word for word in profile.extra_args if word not in ("-nkvo", "--no-kv-offload")]
    fixes.append(Fix("The KV cache on the device", {"extra_args": kept}))
    return fixes


def thermal_or_power_limit(evidence: Evidence) -> Finding | None:
    """The driver lowers a device's clocks: for heat or a fault a warning, for its power limit info."""
    limited = {
        name: reasons
        for name, looks in evidence.devices.items()
        if (reasons := _lasting(looks)) and _uses(evidence, name)
    }
    if not limited:
        return None
    is_serious = any(reason in _HEAT_AND_FAULT for reasons in limited.values() for reason in reasons)
    said = "; ".join(f"{name} for {', '.join(reasons)}" for name, reasons in limited.items())
    return Finding(
        "thermal-or-power-limit",
        Severity.WARNING if is_serious else Severity.INFO,
        f"The driver lowers the clocks of {said}. It computes slower than it could, and figures measured now are those "
        "of a slowed device.",
        expected="clocks that nothing limits",
        observed=", ".join(_state(name, evidence.devices[name][-1]) for name in limited),
        evidence=f"reasons that the driver gives, in {LIMITED_SHARE:.0%} or more of the looks of a minute",
        fixes=[
            Fix("Cooling and air flow" if is_serious else "Its power limit: nvidia-smi -q -d POWER"),
        ],
    )


def _lasting(looks: Sequence[DeviceSample]) -> list[str]:
    """Reasons that limit it in enough of the newest looks."""
    looks = [look for look in looks if look.at_seconds > looks[-1].at_seconds - LIMITED_SECONDS]
    if len(looks) < LIMITED_LOOKS_LEAST:
        return []
    return [
        reason
        for reason in (*_HEAT_AND_FAULT, _POWER_CAP)
        if sum(reason in look.throttle_reasons for look in looks) >= LIMITED_SHARE * len(looks)
    ]


def _state(name: str, look: DeviceSample) -> str:
    heat = "" if look.temperature_celsius is None else f" {look.temperature_celsius} °C"
    power = "" if look.power_watts is None else f" {look.power_watts:.0f} W"
    return f"{name}{heat}{power}"


def _uses(evidence: Evidence, name: str) -> bool:
    return any(device["name"] == name and device["required_bytes"] for device in evidence.launch.report.devices)


RULES = (device_starved, thermal_or_power_limit)
