"""The restart policy at work, on the ends of lives that were none."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from app.errors import InstanceFailed
from app.events import Event
from app.instances.facts import FindingRaised
from app.instances.instance import Instance
from app.instances.recovery import Recovery
from app.instances.restart import RestartPolicy
from app.llama_server.log_lines import Failure

LATER = RestartPolicy(first_pause_seconds=600, longest_pause_seconds=600)


@dataclass
class _Launch:
    revision: int


@dataclass
class _Story:
    failure: Failure | None
    ready_seconds: float | None


@dataclass
class Ended:
    """What the policy looks at of a life that is over: by default one that crashed after a second."""

    revision: int = 1
    ready_seconds: float | None = 1.0
    failure: Failure | None = field(default_factory=lambda: Failure("killed-by-signal-9", "It was killed.", ("last",)))
    was_asked: bool = False
    profile_id: str = "small"
    followed_eviction: bool = False

    def __post_init__(self) -> None:
        self.launch = _Launch(self.revision)
        self.story = _Story(self.failure, self.ready_seconds)


class Bench:
    """A recovery, and what it did."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.told: list[Event] = []
        self.recovery = Recovery(policy, self.started.put, self.told.append)

    def ended(self, **life: Any) -> None:
        self.recovery.ended(cast(Instance, cast(Any, Ended(**life))))

    def gave_up(self) -> bool:
        return any(
            isinstance(event, FindingRaised) and event.finding.rule == "restarts-given-up" for event in self.told
        )


@pytest.fixture
async def patient() -> Any:
    bench = Bench(LATER)
    yield bench
    bench.recovery.close()


@pytest.mark.parametrize("most", [0, 1, 5, 60])
async def test_it_gives_up_after_as_many_crashes_as_it_is_told(most: int) -> None:
    bench = Bench(RestartPolicy(first_pause_seconds=0.0, longest_pause_seconds=0.0, crashes_most=most))
    for _ in range(most):
        bench.ended()
        assert await asyncio.wait_for(bench.started.get(), 5) == "small"
        assert not bench.gave_up()
        bench.recovery.admit("small", 1)
    bench.ended()
    assert bench.gave_up()
    assert bench.recovery.pending("small") is None
    with pytest.raises(InstanceFailed, match=f"crashed {most + 1} times in a row"):
        bench.recovery.admit("small", 1)


async def test_loads_that_fail_between_crashes_do_not_make_it_forget_them() -> None:
    bench = Bench(RestartPolicy(first_pause_seconds=0.0, longest_pause_seconds=0.0, crashes_most=5))
    for _ in range(5):
        bench.ended()
        await asyncio.wait_for(bench.started.get(), 5)
        for _ in range(6):
            bench.ended(ready_seconds=None)
    assert not bench.gave_up()
    bench.ended()
    assert bench.gave_up()


async def test_another_revision_begins_anew_and_waits_for_no_pause_of_the_old_one(patient: Bench) -> None:
    patient.ended()
    assert patient.recovery.pending("small") is patient.recovery.pending("small", 1) is not None
    assert patient.recovery.pending("small", 2) is None
    patient.recovery.admit("small", 2)
    # As soon as the new one has a history of its own, the old one is over.
    old = patient.recovery.pending("small")
    patient.ended(revision=2, ready_seconds=None)
    assert old is not None
    await asyncio.wait({old})
    assert old.cancelled()
    with pytest.raises(InstanceFailed):
        patient.recovery.admit("small", 2)


async def test_what_is_taken_in_hand_has_no_restart_and_no_pause(patient: Bench) -> None:
    patient.ended()
    assert patient.recovery.backoff_until("small") is not None
    pending = patient.recovery.pending("small")
    assert pending is not None
    patient.recovery.clear("small")
    await asyncio.wait({pending})
    assert pending.cancelled()
    assert patient.recovery.backoff_until("small") is None
    patient.recovery.admit("small", 1)


async def test_what_was_asked_to_end_stays_ended(patient: Bench) -> None:
    patient.ended(was_asked=True, failure=None)
    assert patient.recovery.pending("small") is None
    patient.recovery.admit("small", 1)
