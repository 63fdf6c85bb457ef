"""What follows the end of a life: a restart, a pause, or giving up. Pure: histories in, a decision out.

A life that failed while it loaded would fail again: it is tried anew only where the cause passes by itself. A server
that crashed after it had served comes back after a pause that doubles, until it has crashed too often in a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The cause lies outside of the profile and passes: somebody else's port, memory that a neighbour still held.
TRANSIENT_REASONS = frozenset({"address-in-use", "address-foreign"})


@dataclass(frozen=True, slots=True)
class Ending:
    """How one life ended. Times are seconds of one monotonic clock.

    `ready_seconds` is how long it was READY, None where it never was. `was_asked` is true where we ended it.
    `had_neighbour` is true where memory that an evicted instance gave back was to be used.
    """

    at_seconds: float
    reason: str
    ready_seconds: float | None
    was_asked: bool = False
    had_neighbour: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Seconds of pauses, and how many failures in a row are too many.

    A life that was READY for `stable_seconds` is a success: what was before it no longer counts.
    """

    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 60.0
    crashes_most: int = 5
    transient_failures_most: int = 3
    first_hold_seconds: float = 10.0
    longest_hold_seconds: float = 600.0
    stable_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing follows: it was asked to end. The next start is free."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start anew after so many seconds."""

    after_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """No restart. For so many seconds a request is answered with the failure instead of loading in vain again."""

    for_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No restart, not for a request either: somebody must look. A start by hand or another revision begins anew."""

    why: str


Following = Rest | Restart | Hold | GiveUp


def following(endings: Sequence[Ending], policy: RestartPolicy) -> Following:
    """What follows the last of `endings`, which are those of one profile revision, oldest first."""
    if not endings or endings[-1].was_asked:
        return Rest()
    last = endings[-1]
    if last.ready_seconds is not None:
        return _after_crash(endings, policy)
    if is_transient(last):
        return _after_transient(endings, policy)
    failures = _in_a_row(endings, lambda ending: ending.ready_seconds is None and not is_transient(ending))
    seconds = min(policy.first_hold_seconds * 2 ** (failures - 1), policy.longest_hold_seconds)
    return Hold(seconds, f"it failed while it loaded ({last.reason}), which a retry does not change")


def is_transient(ending: Ending) -> bool:
    """Whether the cause of a failure while loading passes by itself."""
    return ending.reason in TRANSIENT_REASONS or (ending.reason == "out-of-memory" and ending.had_neighbour)


def _after_crash(endings: Sequence[Ending], policy: RestartPolicy) -> Following:
    crashes = 0
    for ending in reversed(endings):
        if ending.was_asked:
            break
        if ending.ready_seconds is None:
            # A failed load between two crashes is no success.
            continue
        crashes += 1
        if ending.ready_seconds >= policy.stable_seconds:
            break
    reason = endings[-1].reason
    if crashes > policy.crashes_most:
        return GiveUp(f"it crashed {crashes} times in a row ({reason}), and is not started again by itself")
    seconds = min(policy.first_pause_seconds * 2 ** (crashes - 1), policy.longest_pause_seconds)
    return Restart(seconds, f"it crashed ({reason}): crash {crashes} of {policy.crashes_most} in a row")


def _after_transient(endings: Sequence[Ending], policy: RestartPolicy) -> Following:
    failures = _in_a_row(endings, lambda ending: ending.ready_seconds is None and is_transient(ending))
    reason = endings[-1].reason
    if failures > policy.transient_failures_most:
        return Hold(policy.first_hold_seconds, f"{reason} has not passed in {failures} attempts")
    seconds = min(policy.first_pause_seconds * 2 ** (failures - 1), policy.longest_pause_seconds)
    return Restart(seconds, f"{reason} may have passed by then")


def _in_a_row(endings: Sequence[Ending], belongs: Callable[[Ending], bool]) -> int:
    count = 0
    for ending in reversed(endings):
        if ending.was_asked or not belongs(ending):
            break
        count += 1
    return count
