"""Three profiles, and a card with room for two of them: who goes, who is waited for, and when the next may load."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.nvml import MIB
from fixtures.faulty_engine import ended, reached
from fixtures.simulated_card import MARGIN_BYTES, CardService, Giving, service_with_card
from fixtures.tiny_models import TinyModels
from fixtures.told_events import told_until
from service import InFlight, completion, eventually

RETURN_SECONDS = 6.0
# A stream of 32 tokens then takes a second and a half.
SLOW = {"chunk_interval_seconds": 0.05}


@pytest.fixture(scope="module")
def running(tiny: TinyModels, nvml_library: Path) -> Iterator[CardService]:
    with service_with_card(tiny, nvml_library, memory_return_seconds=RETURN_SECONDS, yield_seconds=0.5) as running:
        yield running


@pytest.fixture
def card(running: CardService) -> Iterator[CardService]:
    """Nothing runs, before and after."""
    yield running
    running.card.gives(Giving())
    for profile in running.service.client.get("/profiles").json()["items"]:
        running.service.client.post(f"/profiles/{profile['id']}/stop", params={"wait": True, "drain_seconds": 0})
        assert running.service.client.delete(f"/profiles/{profile['id']}").status_code == 204
    assert eventually(lambda: running.card.is_empty or None)


def profiles(running: CardService, names: Sequence[str], fitting: float, **parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Profiles of one size, on a card where so many fit; `parts` by name."""
    for name in names:
        running.profile(name, **parts.get(name, {}))
    needed = running.needed_bytes(names[0])
    running.card.room(MARGIN_BYTES + int(needed * fitting))
    return tuple(names)


def rules(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {finding["rule"]: finding for finding in report["findings"]}


def evictions(card: CardService, profile_id: str) -> dict[str, Any]:
    return told_until(card.service, "residency.evicted", lambda event: bool(event["profile_id"] == profile_id))[-1]


def test_the_cheapest_goes_and_the_check_says_so_before(card: CardService) -> None:
    parts = {"lru-one": {"scenario": {"load_seconds": 0.5}}}
    one, two, third = profiles(card, ("lru-one", "lru-two", "lru-third"), 2.5, **parts)
    for name in (one, two, one):
        assert card.service.complete(name).status_code == 200
    report = card.check(third)
    assert report["verdict"] != "refused"
    assert report["residency"] == {"evict": [two], "wait": False}
    assert two in rules(report)["residency-evicts"]["message"]
    assert card.lives() == [one, two]

    assert card.service.complete(third).status_code == 200
    assert card.lives() == [one, third]
    gone = card.service.newest(two)
    assert (gone["state"], gone["reason"]) == ("stopped", "evicted")
    told = evictions(card, third)
    assert (told["evicted_instance_ids"], told["evicted_profile_ids"]) == ([gone["id"]], [two])
    assert 0 <= told["freed_seconds"] < RETURN_SECONDS
    assert card.card.lowest_bytes >= MARGIN_BYTES


def test_a_busy_one_is_waited_for(card: CardService) -> None:
    pinned = {"serving": {"pinned": True}}
    kept, busy, third = profiles(
        card, ("bw-kept", "bw-busy", "bw-third"), 2.5, **{"bw-kept": pinned, "bw-busy": {"scenario": SLOW}}
    )
    card.service.start(kept)
    request = InFlight(card.service, completion(busy, stream=True))
    assert request.has_begun()
    report = card.check(third)
    assert report["residency"] == {"evict": [], "wait": True}
    assert busy in rules(report)["residency-waits"]["message"]
    assert card.service.client.post(f"/profiles/{third}/start").status_code == 409

    answer = card.service.complete(third)
    assert answer.status_code == 200
    assert request.payloads[-1] == "[DONE]", "it was cut for another profile"
    assert card.lives() == [kept, third]


def test_a_pinned_one_is_never_ended(card: CardService) -> None:
    pinned = {"serving": {"pinned": True}}
    one, two, third = profiles(card, ("pin-one", "pin-two", "pin-third"), 2.5, **{"pin-one": pinned, "pin-two": pinned})
    card.service.start(one)
    card.service.start(two)
    refused = card.service.complete(third)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "launch_refused")
    message = refused.json()["error"]["message"]
    assert "residency-refused" in message
    assert f"{one} (pinned)" in message
    assert rules(card.check(third))["residency-refused"]["severity"] == "error"
    assert card.lives() == [one, two]


def test_a_loading_one_is_waited_for_and_serves_who_waits_for_it(card: CardService) -> None:
    parts = {"ld-kept": {"serving": {"pinned": True}}, "ld-slow": {"scenario": {"load_seconds": 1.0}}}
    kept, slow, third = profiles(card, ("ld-kept", "ld-slow", "ld-third"), 2.5, **parts)
    card.service.start(kept)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(card.service.complete, slow)
        reached(card.service, slow, "loading")
        assert card.check(third)["residency"] == {"evict": [], "wait": True}
        second = pool.submit(card.service.complete, third)
        assert first.result().status_code == 200
        assert second.result().status_code == 200
    assert [len(card.faults.facts(name, "started")) for name in (slow, third)] == [1, 1]
    assert card.card.lowest_bytes >= MARGIN_BYTES


def test_the_less_important_goes_though_it_was_used_last(card: CardService) -> None:
    parts = {"pr-high": {"serving": {"priority": 5}}}
    high, low, third = profiles(card, ("pr-high", "pr-low", "pr-third"), 2.5, **parts)
    for name in (high, low):
        assert card.service.complete(name).status_code == 200
    assert card.check(third)["residency"]["evict"] == [low]
    assert card.service.complete(third).status_code == 200
    assert card.lives() == [high, third]


def test_bytes_decide_and_not_the_count(card: CardService) -> None:
    """One that is small enough for what is left comes up beside the others."""
    one, two, third = profiles(card, ("by-one", "by-two", "by-third"), 3.0)
    for name in (one, two, third):
        assert card.service.complete(name).status_code == 200
    assert card.lives() == sorted([one, two, third])
    assert card.card.lowest_bytes == MARGIN_BYTES


def test_what_ends_and_what_is_idle_make_room_together(card: CardService) -> None:
    parts = {"both-busy": {"scenario": SLOW}}
    busy, idle, third = profiles(card, ("both-busy", "both-idle", "both-third"), 2.0, **parts)
    # It needs the room of both.
    card.service.client.patch(f"/profiles/{third}", json={"placement": {"margin_bytes": MARGIN_BYTES + 100 * MIB}})
    card.service.start(idle)
    request = InFlight(card.service, completion(busy, stream=True))
    assert request.has_begun()
    card.service.client.post(f"/profiles/{busy}/stop", params={"drain_seconds": 10})
    report = card.check(third)
    assert report["residency"] == {"evict": [idle], "wait": False}, report["findings"]
    assert card.service.complete(third).status_code == 200
    assert request.payloads[-1] == "[DONE]"


@pytest.mark.slow
def test_the_next_loads_only_after_the_step_that_made_it_fit(card: CardService) -> None:
    """Earns that no launch runs out of memory because a driver takes its time: three seconds here."""
    one, two, third = profiles(card, ("late-one", "late-two", "late-third"), 2.7)
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
    assert 2.9 < evictions(card, third)["freed_seconds"] < RETURN_SECONDS


@pytest.mark.slow
def test_what_somebody_else_took_meanwhile_refuses_it_with_that_figure(card: CardService) -> None:
    """Earns the other outcome: the wait is bounded, and the answer says what is lacking."""
    parts = {"gone-kept": {"serving": {"pinned": True}}}
    kept, two, third = profiles(card, ("gone-kept", "gone-two", "gone-third"), 2.0, **parts)
    needed = card.needed_bytes(third)
    for name in (kept, two):
        card.service.start(name)
    card.card.gives(Giving(2.4, 3, 0.3, foreign_bytes=(0, 100 * MIB, 37 * MIB)))
    refused = card.service.complete(third)
    assert refused.status_code == 503
    assert "CUDA0 lacks 137 MiB" in refused.json()["error"]["message"]
    assert card.faults.facts(third, "started") == []
    assert card.lives() == [kept]
    assert evictions(card, third)["freed_seconds"] is None
    assert card.card.free_bytes == needed + MARGIN_BYTES - 137 * MIB
    # When they have gone it comes up.
    card.card.foreign(0)
    assert card.service.complete(third).status_code == 200


@pytest.mark.slow
def test_its_own_memory_is_waited_for_too(card: CardService) -> None:
    """Earns that a restart, and the start after a crash, do not end where a driver takes its time."""
    (only,) = profiles(card, ("own-only",), 1.5)
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
def test_two_that_take_turns_both_serve(card: CardService) -> None:
    """Earns that a load which lasts longer than the patience of others is not in vain: it serves who waited for it."""
    parts = {name: {"scenario": {"load_seconds": 1.2}} for name in ("turn-one", "turn-two")}
    one, two = profiles(card, ("turn-one", "turn-two"), 1.5, **parts)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(card.service.complete, [one, two] * 6))
    assert [answer.status_code for answer in answers] == [200] * 12
    loads = [len(card.faults.facts(name, "started")) for name in (one, two)]
    assert loads == [1, 1]
    assert card.card.lowest_bytes >= MARGIN_BYTES


@pytest.mark.slow
def test_a_steady_stream_of_requests_gives_way_in_the_end(card: CardService) -> None:
    """Earns that a profile under steady traffic does not keep another one out for ever."""
    parts = {"steady-one": {"scenario": {"chunk_interval_seconds": 0.01}}}
    one, two = profiles(card, ("steady-one", "steady-two"), 1.5, **parts)
    card.service.start(one)
    is_served = threading.Event()

    def ask_again_and_again(_: int) -> set[int]:
        """Until the other has been served, and then once more."""
        codes = set[int]()
        while not is_served.is_set():
            codes.add(card.service.complete(one).status_code)
        return codes | {card.service.complete(one).status_code}

    with ThreadPoolExecutor(3) as pool:
        steady = [pool.submit(ask_again_and_again, number) for number in range(3)]
        eventually(lambda: card.service.newest(one)["leases"] == 3 or None)
        try:
            wanted = card.service.complete(two)
        finally:
            is_served.set()
        assert [each.result() for each in steady] == [{200}] * 3
    assert wanted.status_code == 200


@pytest.mark.slow
def test_what_does_not_fit_at_the_start_is_told_once(tiny: TinyModels, nvml_library: Path) -> None:
    """Earns that an autostart which finds no room is a finding and no loop, and ends nobody."""
    with service_with_card(tiny, nvml_library) as running:
        parts = {f"auto-{n}": {"serving": {"autostart": True, "priority": -n}} for n in range(3)}
        one, two, third = profiles(running, tuple(parts), 2.5, **parts)
        with running.again() as again:
            found = told_until(again.service, "finding")
            assert [(each["profile_id"], each["source"], each["finding"]["rule"]) for each in found] == [
                (third, "autostart", "device-memory")
            ]
            assert again.lives() == [one, two]
            assert again.service.complete(third).status_code == 200
