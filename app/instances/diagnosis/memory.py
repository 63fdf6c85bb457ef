"""Bytes above the plan, by device and term, and what the driver shows beside them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app import findings
from app.findings import Finding, Fix
from app.instances.diagnosis.changes import changing
from app.instances.evidence import DeviceSample, Evidence
from app.launch.report import predicted_memory
from app.placement.amounts import listed, mib
from app.placement.budgets import HOST_NAME

# The estimates of compute buffers are within some tens of MiB of the engine's, or a tenth where they are large.
TOLERANCE_BYTES: Final = 64 << 20
TOLERANCE_SHARE: Final = 0.10


def memory_over_plan(evidence: Evidence) -> Iterator[Finding]:
    """A finding for each device (and the host) on which a term takes more than planned, beyond the tolerance.

    Where the engine's own figures show nothing, the driver's may: info then, since it cannot be told whose bytes they
    are.
    """
    predicted = predicted_memory(evidence.launch.report)
    measured = evidence.measured.memory if evidence.measured else {}
    told: set[str] = set()
    for name, terms in measured.items():
        planned = predicted.get(name, {})
        over = {
            term: n_bytes - planned.get(term, 0)
            for term, n_bytes in terms.items()
            if n_bytes - planned.get(term, 0) > tolerance_bytes(planned.get(term, 0))
        }
        if over:
            told.add(name)
            yield _by_engine(evidence, name, terms, planned, over)
    for device in evidence.launch.report.devices:
        sample = _latest(evidence, device["name"])
        if device["name"] not in told and sample is not None and (found := _by_driver(device, sample)) is not None:
            yield found


def tolerance_bytes(planned_bytes: int) -> int:
    """How much more than planned says nothing."""
    return max(TOLERANCE_BYTES, round(planned_bytes * TOLERANCE_SHARE))


def _by_engine(
    evidence: Evidence, name: str, terms: Mapping[str, int], planned: Mapping[str, int], over: Mapping[str, int]
) -> Finding:
    excess = sum(over.values())
    fixes = []
    if name != HOST_NAME:
        margin = max((device["margin_bytes"] for device in evidence.launch.report.devices), default=0) + excess
        fixes.append(Fix("Leave so much more free in plans", {"placement": {"margin_bytes": margin}}))
    return findings.warning(
        "memory-over-plan",
        f"On {name} this launch takes {mib(excess)} more than planned: {listed(over)}. What was promised to other "
        "launches there may not be.",
        expected=listed({term: planned.get(term, 0) for term in over}),
        observed=listed({term: terms[term] for term in over}),
        evidence="the engine's output; the plan of this launch",
        fixes=changing(evidence.launch.profile, fixes),
    )


def _by_driver(device: Mapping[str, Any], sample: DeviceSample) -> Finding | None:
    """Bytes that went since the check, against those of this launch and those that were promised to others."""
    if sample.free_bytes is None or not device["free_bytes"] or not device["required_bytes"]:
        return None
    taken, required = device["free_bytes"] - sample.free_bytes, device["required_bytes"]
    expected = required + device["reserved_bytes"]
    if taken - expected <= tolerance_bytes(required):
        return None
    return findings.info(
        "memory-over-plan",
        f"Since the check {mib(taken)} of {device['name']} were taken, {mib(taken - expected)} more than this launch "
        "and those that were loading were to take: it takes more than planned, or something came after it.",
        expected=f"{mib(expected)} taken, so {mib(device['free_bytes'] - expected)} free",
        observed=f"{mib(sample.free_bytes)} free",
        evidence="the driver's free memory; the machine as the check saw it",
        fixes=[Fix(f"See who holds memory of {device['name']}: GET /devices")],
    )


def _latest(evidence: Evidence, name: str) -> DeviceSample | None:
    return next(reversed(evidence.devices.get(name, ())), None)


RULES = (memory_over_plan,)
