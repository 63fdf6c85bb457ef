"""A driver that shows the memory of an ended engine seconds late, in steps, while somebody else takes some of it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.nvml import MIB
from fixtures.card_service import MARGIN_BYTES, CardService, service_with_card
from fixtures.faulty_engine import ended, reached
from fixtures.simulated_card import Giving
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, InFlight, completion

RETURN_SECONDS = 6.0


@pytest.fixture(scope="module")
def running(tiny: TinyModels, nvml_library: Path) -> Iterator[CardService]:
    with service_with_card(tiny, nvml_library, memory_return_seconds=RETURN_SECONDS) as running:
        yield running


@pytest.fixture
def card(running: CardService) -> Iterator[CardService]:
    """Nothing runs, before and after."""
    yield running
    running.clear()


@pytest.mark.slow
def test_the_next_loads_only_after_the_step_that_made_it_fit(card: CardService) -> None:
    """Earns that no launch runs out of memory because a driver takes its time: three seconds here."""
    one, two, third = card.profiles(("late-one", "late-two", "late-third"), 2.7)
    needed = card.needed_bytes(third)
    for name in (one, two):
        card.service.start(name)
    # Half of what is left over goes to somebody else: of four steps the last one is needed.
    card.card.gives(Giving(2.1, 4, 0.3, foreign_bytes=(int(needed * 0.3), 0, int(needed * 0.3), 0)))
    asked_at = time.time()
    assert card.service.complete(third).status_code == 200
    fits = card.card.first_with(needed + MARGIN_BYTES, asked_at)
    (started,) = card.faults.facts(third, "started")
    assert fits.unix_seconds - asked_at >= 2.9
    assert started["unix_seconds"] > fits.unix_seconds
    assert card.card.lowest_bytes >= MARGIN_BYTES
    assert len(card.lives()) == 2, "one was enough, also while its memory was not seen yet"
    assert 2.9 < card.evicted_for(third)["freed_seconds"] < RETURN_SECONDS


@pytest.mark.slow
def test_what_somebody_else_took_meanwhile_refuses_it_with_that_figure(card: CardService) -> None:
    """Earns the other outcome: the wait is bounded, and the answer says what is lacking."""
    parts = {"gone-kept": {"serving": {"pinned": True}}}
    kept, two, third = card.profiles(("gone-kept", "gone-two", "gone-third"), 2.0, **parts)
    needed = card.needed_bytes(third)
    for name in (kept, two):
        card.service.start(name)
    card.card.gives(Giving(2.4, 3, 0.3, foreign_bytes=(0, 100 * MIB, 37 * MIB)))
    refused = card.service.complete(third)
    assert refused.status_code == 503
    assert "CUDA0 lacks 137 MiB" in refused.json()["error"]["message"]
    assert card.faults.facts(third, "started") == []
    assert card.lives() == [kept]
    assert card.evicted_for(third)["freed_seconds"] is None
    assert card.card.free_bytes == needed + MARGIN_BYTES - 137 * MIB
    # When they have gone it comes up.
    card.card.foreign(0)
    assert card.service.complete(third).status_code == 200


@pytest.mark.slow
def test_its_own_memory_is_waited_for_too(card: CardService) -> None:
    """Earns that a restart, and the start after a crash, do not end where a driver takes its time."""
    (only,) = card.profiles(("own-only",), 1.5)
    first = card.service.start(only)
    card.card.gives(Giving(1.5, 2, 0.3))
    again = card.service.client.post(f"/profiles/{only}/restart", params={"wait": True})
    assert again.status_code == 200, again.text
    assert again.json()["id"] != first["id"]
    os.kill(again.json()["pid"], signal.SIGKILL)
    ended(card.service, again.json()["id"])
    reached(card.service, only, "ready")
    assert card.service.newest(only)["id"] != again.json()["id"]
    assert card.card.lowest_bytes >= MARGIN_BYTES


@pytest.mark.slow
def test_the_service_ends_while_somebody_waits_for_memory(tiny: TinyModels, nvml_library: Path) -> None:
    """Earns that a driver which takes its time does not keep the service from ending."""
    with service_with_card(tiny, nvml_library) as running:
        one, two = running.profiles(("end-one", "end-two"), 1.5)
        running.service.start(one)
        running.card.gives(Giving(60))
        waiting = InFlight(running.service, completion(two))
        reached(running.service, one, "stopped")
        began = time.monotonic()
        running.process.process.terminate()
        running.process.process.wait(DEADLINE_SECONDS)
        assert time.monotonic() - began < 5
        answer, _ = waiting.outcome()
        assert answer is None or answer.status_code >= 500
        assert running.faults.facts(two, "started") == []
