"""PlacementReport: the answer to "what would a launch do here?", and Launch: what a start then executes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from app.findings import Finding, Severity
from app.inventory.engine import EngineFacts
from app.llama_server.flags import ListenAddress, command_line
from app.placement.budgets import HOST_NAME, DeviceBudget, HostBudget, PlacementPlan
from app.placement.case import LaunchCase
from app.placement.resolve import ResolvedLaunch
from app.profiles.profile import LaunchProfile

_PLACEHOLDER = ListenAddress(socket_path="<socket>")


class Verdict(StrEnum):
    """What the findings come to."""

    FITS = "fits"
    FITS_WITH_WARNINGS = "fits_with_warnings"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All that a check found. `estimate_source` is `engine` where the figures are its own, else `analytic`.

    `partial` names what the plan does not know; its figures are then bounds above. Terms of a device add up to its
    `required_bytes`.
    `argv` is what would be executed, with `<socket>` for the private address; `env` what is set for the child beside
    its key.
    """

    verdict: Verdict
    estimate_source: str
    partial: Sequence[str]
    devices: Sequence[Mapping[str, Any]]
    host: Mapping[str, Any]
    layers: Sequence[Mapping[str, Any]]
    resolved: Mapping[str, Any]
    residency: Mapping[str, Any]
    findings: Sequence[Finding]
    argv: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """A checked launch: what an instance executes. `flags` lack the address, which each launch gets afresh."""

    profile: LaunchProfile
    revision: int
    engine: EngineFacts
    flags: tuple[str, ...]
    resolved: ResolvedLaunch
    report: PlacementReport


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check. `launch` is None where an impossibility leaves nothing to execute."""

    report: PlacementReport
    launch: Launch | None = field(default=None)


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """`refused` with any error, else by whether there is a warning."""
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return Verdict.REFUSED
    return Verdict.FITS_WITH_WARNINGS if Severity.WARNING in severities else Verdict.FITS


def report_of(
    case: LaunchCase,
    resolved: ResolvedLaunch,
    flags: tuple[str, ...],
    planned: PlacementPlan,
    source: str,
    verdicts: Sequence[Finding],
) -> PlacementReport:
    """The report of one check."""
    split = case.profile.placement.tensor_split
    return PlacementReport(
        verdict=verdict_of(verdicts),
        estimate_source=source,
        partial=list(planned.partial),
        devices=[_device(device) for device in planned.devices],
        host=_host(planned.host),
        layers=[asdict(span) for span in planned.layers],
        resolved={
            "tensor_split": list(split) if split is not None else None,
            "context_per_slot": resolved.context_per_slot,
            "context_size": resolved.context_size,
            "draft_device": resolved.draft_device,
            "draft_layers": resolved.draft_gpu_layers,
            "draft_tokens_max": resolved.draft_tokens_max,
            "prompt_cache_bytes": resolved.prompt_cache_bytes,
            "output_device": planned.output_device,
        },
        residency={"evict": [], "wait": False},
        findings=list(verdicts),
        argv=list(command_line(case.engine, flags, _PLACEHOLDER)),
        env=dict(case.profile.env),
    )


def _device(budget: DeviceBudget) -> dict[str, Any]:
    return {
        "name": budget.name,
        "total_bytes": budget.total_bytes,
        "free_bytes": budget.free_bytes,
        "reserved_bytes": budget.reserved_bytes,
        "margin_bytes": budget.margin_bytes,
        "required_bytes": budget.required_bytes,
        "headroom_bytes": budget.headroom_bytes,
        "terms": dict(budget.terms),
    }


def _host(budget: HostBudget) -> dict[str, Any]:
    return {
        "available_bytes": budget.available_bytes,
        "reserved_bytes": budget.reserved_bytes,
        "required_bytes": budget.required_bytes,
        "mapped_bytes": budget.mapped_bytes,
        "headroom_bytes": budget.headroom_bytes,
        "terms": dict(budget.terms),
    }


def predicted_memory(report: PlacementReport) -> dict[str, dict[str, int]]:
    """Bytes by device (and `host`) and term, as the plan has them."""
    devices = {str(device["name"]): dict(device["terms"]) for device in report.devices}
    return {**devices, HOST_NAME: dict(report.host.get("terms", {}))}


def required_memory(report: PlacementReport) -> dict[str, int]:
    """Bytes by device that the launch takes, and on the host (`host`) those that must stay resident."""
    devices = {str(device["name"]): int(device["required_bytes"]) for device in report.devices}
    resident_bytes = int(report.host.get("required_bytes", 0)) - int(report.host.get("mapped_bytes", 0))
    return {**devices, HOST_NAME: resident_bytes}


def promised_host_bytes(report: PlacementReport) -> int:
    """What the launch may come to keep on the host while it serves: prompt cache and checkpoints."""
    return int(report.host.get("terms", {}).get("host_caches", 0))
