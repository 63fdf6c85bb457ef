"""Three profiles, and a card with room for two of them: who goes, and who is waited for."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.nvml import MIB
from fixtures.card_service import MARGIN_BYTES, CardService, service_with_card
from fixtures.faulty_engine import reached
from fixtures.tiny_models import TinyModels
from fixtures.told_events import told_until
from service import (
    InFlight,
    completion,
    eventually,
    running_service,
    settings_for,
    short_folder,
)

# A stream of 32 tokens then takes a second and a half.
SLOW = {"chunk_interval_seconds": 0.05}


@pytest.fixture(scope="module")
def running(tiny: TinyModels, nvml_library: Path) -> Iterator[CardService]:
    with service_with_card(tiny, nvml_library, yield_seconds=0.5) as running:
        yield running


@pytest.fixture
def card(running: CardService) -> Iterator[CardService]:
    """Nothing runs, before and after."""
    yield running
    running.clear()


def rules(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {finding["rule"]: finding for finding in report["findings"]}


def test_the_cheapest_goes_and_the_check_says_so_before(card: CardService) -> None:
    parts = {"lru-one": {"scenario": {"load_seconds": 0.5}}}
    one, two, third = card.profiles(("lru-one", "lru-two", "lru-third"), 2.5, **parts)
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
    told = card.evicted_for(third)
    assert (told["evicted_instance_ids"], told["evicted_profile_ids"]) == ([gone["id"]], [two])
    assert 0 <= told["freed_seconds"] < 5
    assert card.card.lowest_bytes >= MARGIN_BYTES


def test_a_busy_one_is_waited_for(card: CardService) -> None:
    pinned = {"serving": {"pinned": True}}
    kept, busy, third = card.profiles(
        ("bw-kept", "bw-busy", "bw-third"), 2.5, **{"bw-kept": pinned, "bw-busy": {"scenario": SLOW}}
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
    one, two, third = card.profiles(("pin-one", "pin-two", "pin-third"), 2.5, **{"pin-one": pinned, "pin-two": pinned})
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
    kept, slow, third = card.profiles(("ld-kept", "ld-slow", "ld-third"), 2.5, **parts)
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


def test_what_loads_counts_once_though_the_card_shows_it_already(card: CardService) -> None:
    parts = {"once-slow": {"scenario": {"load_seconds": 1.0}}}
    idle, slow, third = card.profiles(("once-idle", "once-slow", "once-third"), 3.0, **parts)
    card.service.start(idle)
    free = card.card.free_bytes
    card.service.client.post(f"/profiles/{slow}/start")
    assert eventually(lambda: card.card.free_bytes < free or None)
    reached(card.service, slow, "loading")
    report = card.check(third)
    assert report["residency"] == {"evict": [], "wait": False}
    assert report["devices"][0]["headroom_bytes"] == 0
    assert card.service.client.post(f"/profiles/{third}/start").status_code == 202
    for name in (slow, third):
        reached(card.service, name, "ready")
    assert card.lives() == sorted([idle, slow, third])


def test_the_less_important_goes_though_it_was_used_last(card: CardService) -> None:
    parts = {"pr-high": {"serving": {"priority": 5}}}
    high, low, third = card.profiles(("pr-high", "pr-low", "pr-third"), 2.5, **parts)
    for name in (high, low):
        assert card.service.complete(name).status_code == 200
    assert card.check(third)["residency"]["evict"] == [low]
    assert card.service.complete(third).status_code == 200
    assert card.lives() == [high, third]


def test_bytes_decide_and_not_the_count(card: CardService) -> None:
    """One that is small enough for what is left comes up beside the others."""
    one, two, third = card.profiles(("by-one", "by-two", "by-third"), 3.0)
    for name in (one, two, third):
        assert card.service.complete(name).status_code == 200
    assert card.lives() == sorted([one, two, third])
    assert card.card.lowest_bytes == MARGIN_BYTES


def test_what_ends_and_what_is_idle_make_room_together(card: CardService) -> None:
    parts = {"both-busy": {"scenario": SLOW}}
    busy, idle, third = card.profiles(("both-busy", "both-idle", "both-third"), 2.0, **parts)
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
def test_two_that_take_turns_both_serve(card: CardService) -> None:
    """Earns that a load which lasts longer than the patience of others is not in vain: it serves who waited for it."""
    parts = {name: {"scenario": {"load_seconds": 1.2}} for name in ("turn-one", "turn-two")}
    one, two = card.profiles(("turn-one", "turn-two"), 1.5, **parts)
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
    one, two = card.profiles(("steady-one", "steady-two"), 1.5, **parts)
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
def test_who_waits_too_long_for_room_is_told_and_nothing_is_loaded_for_nobody(card: CardService) -> None:
    """Earns that the bound of a queue holds for the wait for room too, and that it ends with the last who waited."""
    parts = {"nb-busy": {"scenario": SLOW}, "nb-third": {"serving": {"queue_timeout_seconds": 0.4}}}
    busy, third, left = card.profiles(("nb-busy", "nb-third", "nb-left"), 1.5, **parts)
    request = InFlight(card.service, completion(busy, stream=True))
    assert request.has_begun()
    told = card.service.complete(third)
    assert (told.status_code, told.json()["error"]["code"]) == (429, "queue_timed_out")
    with pytest.raises(httpx.ReadTimeout):
        card.service.client.post("/v1/completions", json=completion(left), timeout=0.4)
    request.outcome()
    assert request.payloads[-1] == "[DONE]"
    # Whoever comes next finds the one that served, and nobody else was started meanwhile.
    assert card.service.complete(busy).status_code == 200
    assert [card.faults.facts(name, "started") for name in (third, left)] == [[], []]
    assert card.lives() == [busy]


@pytest.mark.engine
@pytest.mark.slow
def test_rpc_servers_have_one_holder_who_gives_way(
    engine_path: Path, rpc_devices: tuple[str, str], tiny: TinyModels
) -> None:
    """Earns that two profiles on different RPC devices do not hang on each other: a server has one client at a time."""
    with (
        short_folder() as folder,
        running_service(
            settings_for(folder, tiny.dense_target.parent, engine=str(engine_path), rpc=rpc_devices)
        ) as service,
    ):
        for name, device in (("rpc-one", "RPC0"), ("rpc-two", "RPC1")):
            service.add({"id": name, "target": {"path": "dense.gguf"}, "placement": {"devices": [device]}})
        assert service.complete("rpc-one").status_code == 200
        report = service.client.post("/profiles/rpc-two/check").json()
        assert report["residency"] == {"evict": ["rpc-one"], "wait": False}, report["findings"]
        served = service.complete("rpc-two")
        assert served.status_code == 200, served.text
        assert (service.newest("rpc-one")["reason"], service.state("rpc-two")) == ("evicted", "ready")


@pytest.mark.slow
def test_what_does_not_fit_at_the_start_is_told_once(tiny: TinyModels, nvml_library: Path) -> None:
    """Earns that an autostart which finds no room is a finding and no loop, and ends nobody."""
    with service_with_card(tiny, nvml_library) as running:
        parts = {f"auto-{n}": {"serving": {"autostart": True, "priority": -n}} for n in range(3)}
        one, two, third = running.profiles(tuple(parts), 2.5, **parts)
        with running.again() as again:
            found = told_until(again.service, "finding")
            assert [(each["profile_id"], each["source"], each["finding"]["rule"]) for each in found] == [
                (third, "autostart", "device-memory")
            ]
            assert again.lives() == [one, two]
            assert again.service.complete(third).status_code == 200
