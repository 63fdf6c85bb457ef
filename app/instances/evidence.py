"""What is known of a life at run time, as values: what a diagnosis looks at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.launch.report import Launch


@dataclass(frozen=True, slots=True)
class MeasuredPlacement:
    """What the engine's own output says of where it put everything, until its model was loaded.

    `memory` has bytes by device (`host` for the host) and term, with the names of a plan's terms; a term that the
    output does not tell is missing. The engine prints MiB with two decimals. `mapped` has, in the place of terms of
    weights that are missing there, how much of the model's file is mapped: it spans what lies between the weights too.
    `unsettled` names the terms of the target or the draft that the engine is known to enlarge afterwards, or that
    were made smaller than the engine wanted.
    `layers` and `draft_layers` count layers by place, empty where they are not told; layers of multi-token prediction
    are among the latter. `methods` are those that really draft, None where the output does not tell, in the order in
    which they are asked; `draft_tokens_max` is the longest draft of the profile's own method, or of any.
    """

    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    mapped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    layers: Mapping[str, int] = field(default_factory=dict)
    draft_layers: Mapping[str, int] = field(default_factory=dict)
    methods: Sequence[str] | None = None
    draft_tokens_max: int | None = None
    slots: int | None = None
    context_per_slot: int | None = None
    unified_kv: bool | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One look at a server process. `at_seconds` is of a monotonic clock, `busy_cores` since the look before.

    A value is None where the system does not tell it.
    """

    at_seconds: float
    busy_cores: float | None
    resident_bytes: int | None
    read_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One look at a device; a value is None where the driver does not tell it. `busy_rate` is from 0 to 1.

    PCIe traffic, in bytes per second, costs the driver more than the rest: it may be that of a look shortly before.
    """

    at_seconds: float
    busy_rate: float | None
    free_bytes: int | None
    total_bytes: int | None
    power_watts: float | None = None
    temperature_celsius: int | None = None
    throttle_reasons: Sequence[str] = ()
    sent_bytes_rate: int | None = None
    received_bytes_rate: int | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the requests that an instance has served, from what its answers reported."""

    requests: int = 0
    generated_tokens: int = 0
    generation_seconds: float = 0.0
    draft_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was recorded of a profile with the same target and no speculation."""

    profile_id: str
    requests: int
    generated_tokens: int
    generation_seconds: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a diagnosis looks at. `speculates` is what the engine's slots say, None where they do not tell.

    `fallback_reason` is the degradation for which the life runs without the speculation that its profile asks for.
    `processes` and `devices` (by the engine's names) are the looks of the last minutes, oldest first.
    """

    launch: Launch
    speculates: bool | None
    slots: int | None
    context_per_slot: int | None
    measured: MeasuredPlacement | None = None
    processes: Sequence[ProcessSample] = ()
    devices: Mapping[str, Sequence[DeviceSample]] = field(default_factory=dict)
    tally: Tally = Tally()
    baseline: Baseline | None = None
    physical_cores: int | None = None
    fallback_reason: str | None = None


def slots_of(evidence: Evidence) -> int:
    """How many slots the engine has: by its own word, else by its output, else as the profile asks."""
    measured = evidence.measured.slots if evidence.measured else None
    return evidence.slots or measured or evidence.launch.profile.context.slots
