"""PlacementReport: the answer to "what would a launch do here?", and Launch: what a start then executes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.findings import Finding, Severity
from app.inventory.engine import EngineFacts
from app.placement.resolve import ResolvedLaunch
from app.profiles.profile import LaunchProfile


class Verdict(StrEnum):
    """What the findings come to."""

    FITS = "fits"
    FITS_WITH_WARNINGS = "fits_with_warnings"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All that a check found. `partial` names what the plan does not know; byte figures are then left out.

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
