"""What happens to instances beside their states, as events."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.events import Event
from app.findings import Finding


@dataclass(frozen=True, slots=True)
class InstanceLoadProgressed(Event):
    """A load came on. `stage` is a word of `loading.py`.

    `fraction` (0 to 1) is an estimate, None where none can be made.
    """

    instance_id: int
    profile_id: str
    stage: str
    fraction: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class InstanceDegraded(Event):
    """The degradations of an instance are others than before; `findings` tells of those that are there now."""

    instance_id: int
    profile_id: str
    degradations: Sequence[str]
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class ResidencyEvicted(Event):
    """Idle instances were ended so that `profile_id` fits.

    `freed_seconds` is how long the devices took to show the memory after the last process had ended; None where they
    did not show it in time.
    """

    profile_id: str
    evicted_instance_ids: Sequence[int]
    evicted_profile_ids: Sequence[str]
    freed_seconds: float | None


@dataclass(frozen=True, slots=True)
class FindingRaised(Event):
    """Something was found that no request asked about: `source` is `autostart`, `restart`, `fallback` or `telemetry`.

    `profile_id` is None where it is about the service.
    """

    profile_id: str | None
    source: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class StartRefused(Event):
    """A start was refused by its check, whoever asked for it; `rule` is the first that said so."""

    profile_id: str
    rule: str


@dataclass(frozen=True, slots=True)
class StartNotBegun(Event):
    """A start came to no instance, and no check had refused it; `reason` is the code of the error, or an end's."""

    profile_id: str
    reason: str


class RestartCause(StrEnum):
    """Why an instance follows another of its profile."""

    FAILURE = "failure"
    ASKED = "asked"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class ProfileRestarted(Event):
    """An instance has begun after the one before it of its profile."""

    profile_id: str
    cause: RestartCause
