"""Finding: the one shape of every rule's verdict, before a launch and at run time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding weighs: an `error` refuses the launch."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Fix:
    """What would help, as a JSON merge patch on the profile.

    `effect_bytes` is the memory it frees on the device concerned, 0 where memory is not the matter.
    """

    description: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    effect_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's verdict with its evidence.

    `rule` is a stable kebab-case id; `expected` and `observed` are what the rule compared, `evidence` is where the
    observation is known from. `overridable` marks a judgement that `force` may pass, never an impossibility.
    """

    rule: str
    severity: Severity
    message: str
    expected: str = ""
    observed: str = ""
    evidence: str = ""
    overridable: bool = False
    fixes: Sequence[Fix] = ()


def error(rule: str, message: str, **rest: Any) -> Finding:
    """A finding that refuses the launch."""
    return Finding(rule, Severity.ERROR, message, **rest)


def warning(rule: str, message: str, **rest: Any) -> Finding:
    """A finding that lets the launch go on, and says what will be worse."""
    return Finding(rule, Severity.WARNING, message, **rest)


def info(rule: str, message: str, **rest: Any) -> Finding:
    """A finding worth knowing."""
    return Finding(rule, Severity.INFO, message, **rest)


def blocking(findings: Sequence[Finding], *, force: bool) -> list[Finding]:
    """The findings that refuse a launch; `force` passes those that are a judgement."""
    return [
        finding for finding in findings if finding.severity is Severity.ERROR and not (force and finding.overridable)
    ]
