"""What may be in memory together: which idle instances give way to a profile that is wanted. Pure.

Decided by bytes on each device, never by the number of instances. Only what is idle goes: never what serves, loads,
is pinned, or is on its way out already.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from app import findings
from app.findings import Finding

# Beyond so many candidates the sets are no longer all looked at: they give way one by one, the cheapest first.
_CANDIDATES_COMPARED = 12


class Hold(StrEnum):
    """Why an instance cannot go now; `FREE` can."""

    FREE = "free"
    BUSY = "busy"
    LOADING = "loading"
    ENDING = "ending"
    PINNED = "pinned"

    @property
    def passes(self) -> bool:
        """Whether waiting helps."""
        return self in (Hold.BUSY, Hold.LOADING, Hold.ENDING)


@dataclass(frozen=True, slots=True)
class Resident:
    """One instance that lives, and what it gives back when it ends: bytes by device, the host's as `host`.

    `idle_seconds` is 0 unless it is idle; `reload_seconds` what its last load took.
    """

    instance_id: int
    profile_id: str
    held_bytes: Mapping[str, int]
    hold: Hold
    idle_seconds: float = 0.0
    reload_seconds: float = 0.0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ResidencyPolicy:
    """`half_life_seconds`: after so long without a request an instance is half as likely to be missed."""

    may_evict: bool = True
    half_life_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Launch:
    """It fits beside all that runs."""


@dataclass(frozen=True, slots=True)
class Evict:
    """It fits when these have ended; cheapest set, and none of them for nothing."""

    instance_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """It would fit without instances that cannot go now, and may later: the cheapest of them, with these ids."""

    instance_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """It does not fit, whatever may go."""

    finding: Finding


Decision = Launch | Evict | Wait | Refuse


def decide(
    wanted: str, short_bytes: Mapping[str, int], residents: Sequence[Resident], policy: ResidencyPolicy
) -> Decision:
    """What must happen before the profile `wanted` can be launched.

    `short_bytes` is what each device (and the host) lacks for its plan with everything that runs now; none or 0: it
    has room. Own earlier lives of `wanted` are not among the residents.
    """
    short = {device: lack for device, lack in short_bytes.items() if lack > 0}
    if not short:
        return Launch()
    useful = [resident for resident in residents if any(resident.held_bytes.get(device, 0) for device in short)]
    ending = [resident for resident in useful if resident.hold is Hold.ENDING]
    # What is on its way out gives its memory back anyway: nobody else is to go for that part.
    lacking = {device: lack - _held(ending, device) for device, lack in short.items()}
    lacking = {device: lack for device, lack in lacking.items() if lack > 0}
    if not lacking:
        return Wait(_ids(ending))
    free = [resident for resident in useful if resident.hold is Hold.FREE] if policy.may_evict else []
    if _covers(free, lacking):
        return Evict(_ids(_cheapest(free, lacking, policy)))
    held_up = (
        [resident for resident in useful if resident.hold in (Hold.BUSY, Hold.LOADING)] if policy.may_evict else []
    )
    if _covers([*free, *held_up], lacking):
        # Those of them that are free go when the others can.
        awaited = [each for each in _cheapest([*free, *held_up], lacking, policy) if each in held_up]
        return Wait(_ids([*ending, *awaited]))
    return Refuse(_finding(wanted, short, useful, policy))


def _ids(residents: Sequence[Resident]) -> tuple[int, ...]:
    return tuple(resident.instance_id for resident in residents)


def _held(residents: Sequence[Resident], device: str) -> int:
    return sum(resident.held_bytes.get(device, 0) for resident in residents)


def missed_seconds(resident: Resident, policy: ResidencyPolicy) -> float:
    """The seconds of loading that its eviction is expected to cost: the longer it is idle, the less it is missed."""
    return max(resident.reload_seconds, 0.001) * math.exp2(-resident.idle_seconds / policy.half_life_seconds)


def _cheapest(candidates: Sequence[Resident], short: Mapping[str, int], policy: ResidencyPolicy) -> Sequence[Resident]:
    return min(_sufficient_sets(candidates, short, policy), key=lambda chosen: _cost(chosen, policy))


def _cost(chosen: Sequence[Resident], policy: ResidencyPolicy) -> tuple[int, float, tuple[int, ...]]:
    """Priority before all; then the expected seconds; ids make it definite."""
    highest = max(resident.priority for resident in chosen)
    return (
        highest,
        sum(missed_seconds(resident, policy) for resident in chosen),
        tuple(sorted(resident.instance_id for resident in chosen)),
    )


def _sufficient_sets(
    candidates: Sequence[Resident], short: Mapping[str, int], policy: ResidencyPolicy
) -> Iterator[Sequence[Resident]]:
    """Sets that give enough, none with a member that is not needed."""
    if len(candidates) > _CANDIDATES_COMPARED:
        yield _one_by_one(candidates, short, policy)
        return
    for size in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, size):
            if _covers(chosen, short) and _is_minimal(chosen, short):
                yield chosen


def _one_by_one(
    candidates: Sequence[Resident], short: Mapping[str, int], policy: ResidencyPolicy
) -> Sequence[Resident]:
    chosen: list[Resident] = []
    for resident in sorted(candidates, key=lambda candidate: _cost([candidate], policy)):
        if _covers(chosen, short):
            break
        chosen.append(resident)
    # The dearest first: whoever is not needed after all stays.
    for resident in reversed(list(chosen)):
        rest = [other for other in chosen if other is not resident]
        if _covers(rest, short):
            chosen = rest
    return chosen


def _covers(chosen: Sequence[Resident], short: Mapping[str, int]) -> bool:
    return all(sum(resident.held_bytes.get(device, 0) for resident in chosen) >= lack for device, lack in short.items())


def _is_minimal(chosen: Sequence[Resident], short: Mapping[str, int]) -> bool:
    return not any(_covers([other for other in chosen if other is not resident], short) for resident in chosen)


def _finding(wanted: str, short: Mapping[str, int], useful: Sequence[Resident], policy: ResidencyPolicy) -> Finding:
    lacks = ", ".join(f"{device} lacks {lack / 2**20:,.0f} MiB" for device, lack in sorted(short.items()))
    holders = [resident for resident in useful if resident.hold is Hold.PINNED or not policy.may_evict]
    if not holders:
        why = "and no instance that could end holds enough of it"
    else:
        named = ", ".join(f"{resident.profile_id} ({resident.hold.value})" for resident in holders)
        why = f"and what holds it is not to be ended: {named}"
    return findings.error(
        "residency-refused",
        f"There is no room for {wanted} beside what runs: {lacks}, {why}. Stop or unpin one of them, or choose a "
        "smaller profile.",
        expected="room, or idle instances that hold enough",
        observed=lacks,
        evidence="the plan, the devices as seen now, and the instances of this service",
        overridable=True,
    )
