"""A stop and a restart by hand where room is scarce and what holds it is busy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.card_service import MARGIN_BYTES, CardService, service_with_card
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, InFlight, completion, eventually

# A stream of 32 tokens then takes a second and a half.
SLOW = {"chunk_interval_seconds": 0.05}
# Longer than any test waits.
ENDLESS = {"chunk_interval_seconds": DEADLINE_SECONDS}


@pytest.fixture(scope="module")
def running(tiny: TinyModels, nvml_library: Path) -> Iterator[CardService]:
    with service_with_card(tiny, nvml_library, memory_return_seconds=1.0) as running:
        yield running


@pytest.fixture
def card(running: CardService) -> Iterator[CardService]:
    """Nothing runs, before and after."""
    yield running
    running.clear()


def begun(card: CardService, profile: str) -> InFlight:
    request = InFlight(card.service, completion(profile, stream=True))
    assert request.has_begun()
    return request


def test_a_stop_ends_the_waiting_for_room(card: CardService) -> None:
    busy, wanted = card.profiles(("st-busy", "st-wanted"), 1.5, **{"st-busy": {"scenario": ENDLESS}})
    answered = begun(card, busy)
    waiting = InFlight(card.service, completion(wanted))

    def withdrawn() -> bool | None:
        stop = card.service.client.post(f"/profiles/{wanted}/stop")
        assert stop.status_code == 409
        return "given up" in stop.json()["detail"] or None

    assert eventually(withdrawn)
    answer, _ = waiting.outcome()
    assert answer is not None
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "profile_not_running")
    assert card.lives() == [busy]
    card.service.stop(busy, drain_seconds=0)
    answered.outcome()
    # Nobody is left who would start it now that there is room.
    assert card.service.client.delete(f"/profiles/{wanted}").status_code == 204
    assert card.lives() == []


def test_a_restart_that_lacks_room_waits_for_it(card: CardService) -> None:
    grows, busy = card.profiles(("rs-grows", "rs-busy"), 2.5, **{"rs-busy": {"scenario": SLOW}})
    first = card.service.start(grows)
    answered = begun(card, busy)
    # It asks for twice as much from now on: there is room for that once the other one has gone.
    more = {"placement": {"margin_bytes": MARGIN_BYTES + card.needed_bytes(grows)}}
    assert card.service.client.patch(f"/profiles/{grows}", json=more).status_code == 200
    again = card.service.client.post(f"/profiles/{grows}/restart", params={"wait": True})
    assert again.status_code == 200
    assert again.json()["id"] != first["id"]
    assert answered.payloads[-1] == "[DONE]", "it was cut for another profile"
    assert card.lives() == [grows]
