"""The service on a machine with two cards: the stub NVML library, nvidia-ml-py on it, and an engine that lists them."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cli.paceline_command import paceline
from fakes.nvml import GIB, MIB, UNKNOWN_ERROR, Card, Scenario, stub_environment
from fixtures.faulty_engine import FAKE_ENGINE
from fixtures.tiny_models import TinyModels
from service import Service, served_process, settings_for, short_folder

FIRST = Card(uuid="GPU-1", pci="00000000:01:00.0", free_bytes=20 * GIB)
SECOND = Card(
    uuid="GPU-2", pci="00000000:41:00.0", name="NVIDIA GeForce RTX 3060", total_bytes=12 * GIB, free_bytes=11 * GIB
)
QUIET = Scenario(cards=[FIRST, SECOND])
LISTED = [
    {"name": "CUDA0", "description": "NVIDIA GeForce RTX 4090", "total_mib": 24080, "free_mib": 1000},
    {"name": "CUDA1", "description": "NVIDIA GeForce RTX 3060", "total_mib": 11910, "free_mib": 1000},
]
PROFILE = {"id": "gemma", "target": {"path": "dense.gguf"}, "placement": {"tensor_split": [2, 1]}}


@dataclass(frozen=True)
class TwoCards:
    service: Service
    scenario: Path

    def play(self, scenario: Scenario) -> None:
        scenario.write(self.scenario)

    def devices(self) -> Any:
        answer = self.service.client.get("/devices")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def findings(self, **question: Any) -> Mapping[str, Mapping[str, Any]]:
        answer = self.service.client.post("/check", json={"profile": PROFILE, **question})
        assert answer.status_code == 200, answer.text
        return {finding["rule"]: finding for finding in answer.json()["findings"]}


@pytest.fixture(scope="module")
def two_cards(tiny: TinyModels, nvml_library: Path) -> Iterator[TwoCards]:
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        engine = folder / "llama-server"
        engine.symlink_to(FAKE_ENGINE)
        (folder / "llama-server.scenario.json").write_text(json.dumps({"devices": LISTED}))
        scenario = folder / "cards"
        QUIET.write(scenario)
        for name, value in stub_environment(nvml_library, scenario).items():
            patch.setenv(name, value)
        # These cards do not follow what runs: nothing is ever on its way back.
        settings = settings_for(folder, tiny.dense_target.parent, engine=str(engine), memory_return_seconds=0)
        with served_process(settings) as process:
            yield TwoCards(process.service, scenario)


@pytest.fixture(autouse=True)
def at_rest(two_cards: TwoCards) -> None:
    two_cards.play(QUIET)


def test_the_cards_of_the_driver_under_the_engines_names(two_cards: TwoCards) -> None:
    seen = two_cards.devices()
    assert [(device["name"], device["uuid"], device["pci_bus_id"]) for device in seen["devices"]] == [
        ("CUDA0", "GPU-1", "0000:01:00.0"), ("CUDA1", "GPU-2", "0000:41:00.0"),
    ]  # fmt: skip
    # What is free comes from the driver, what there is from the engine.
    assert [(device["total_bytes"], device["free_bytes"]) for device in seen["devices"]] == [
        (24080 * MIB, 20 * GIB), (11910 * MIB, 11 * GIB),
    ]  # fmt: skip
    assert seen["live"]["CUDA0"]["temperature_celsius"] == 37
    assert seen["live"]["CUDA0"]["traffic"] == {"sent_bytes_rate": 0, "received_bytes_rate": 0}
    assert seen["driver_version"] == "580.95.05"
    assert seen["problems"] == []


def test_a_check_is_judged_against_what_is_free_now(two_cards: TwoCards) -> None:
    two_cards.play(Scenario(cards=[replace(FIRST, free_bytes=7 * GIB, lines=[f"process 1 {16 * GIB}"]), SECOND]))
    report = two_cards.service.client.post("/check", json={"profile": PROFILE}).json()
    assert report["devices"][0]["free_bytes"] == 7 * GIB
    assert two_cards.findings()["device-busy"]["observed"] == f"CUDA0: pid 1 with {16 * 1024} MiB"
    two_cards.play(QUIET)
    assert "device-busy" not in two_cards.findings()


def test_an_engine_of_ours_is_known_by_its_pid_and_its_memory_comes_back(two_cards: TwoCards) -> None:
    service = two_cards.service
    service.add(PROFILE)
    pid = service.start("gemma")["pid"]
    two_cards.play(Scenario(cards=[replace(FIRST, lines=[f"alive {pid} {9 * GIB}"]), SECOND]))
    seen = two_cards.devices()
    assert seen["devices"][0]["free_bytes"] == 11 * GIB
    (holder,) = seen["usage"]["CUDA0"]["holders"]
    assert (holder["profile_id"], holder["used_bytes"]) == ("gemma", 9 * GIB)
    assert "device-busy" not in two_cards.findings(profile={**PROFILE, "id": "other"})
    service.stop("gemma")
    assert two_cards.devices()["devices"][0]["free_bytes"] == 20 * GIB
    assert service.client.delete("/profiles/gemma").status_code == 204


def test_a_driver_that_falls_silent_refuses_launches_until_it_is_back(two_cards: TwoCards) -> None:
    assert two_cards.devices()["problems"] == []
    functions = ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName")
    two_cards.play(replace(QUIET, lines=[f"error {name} {UNKNOWN_ERROR}" for name in functions]))
    problem = "NVML answers for no card: Unknown Error"
    assert two_cards.devices()["problems"] == [problem]
    silent = two_cards.findings()["driver-silent"]
    assert (silent["severity"], silent["observed"], silent["overridable"]) == ("error", problem, True)
    # What is free is then what the engine says.
    assert two_cards.devices()["devices"][0]["free_bytes"] == 1000 * MIB
    two_cards.play(QUIET)
    assert "driver-silent" not in two_cards.findings()
    assert two_cards.devices()["devices"][0]["free_bytes"] == 20 * GIB


def test_a_profile_that_chooses_its_cards(two_cards: TwoCards) -> None:
    chosen = two_cards.findings(profile={**PROFILE, "env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}})
    assert chosen["device-order"]["fixes"][0]["patch"] == {"env": {"CUDA_DEVICE_ORDER": None}}
    assert "device-order" not in two_cards.findings()


def test_the_machine_can_be_taken_elsewhere_and_given_back(two_cards: TwoCards, tmp_path: Path) -> None:
    settings = {"PACELINE_URL": two_cards.service.base_url}
    shown = paceline("devices", cwd=tmp_path, settings=settings)
    assert shown.code == 0, shown.err
    row = next(line for line in shown.out.splitlines() if line.startswith("CUDA0"))
    assert "20.0 GiB" in row
    assert "37" in row
    exported = paceline("devices", "--json", cwd=tmp_path, settings=settings)
    machine = json.loads(exported.out)
    assert [device["uuid"] for device in machine["devices"]] == ["GPU-1", "GPU-2"]
    two_cards.play(Scenario(cards=[replace(FIRST, free_bytes=GIB), SECOND]))
    answer = two_cards.service.client.post("/check", json={"profile": PROFILE, "machine": machine}).json()
    assert answer["devices"][0]["free_bytes"] == 20 * GIB


def test_a_card_that_others_fill_refuses_the_launch_until_they_go(two_cards: TwoCards) -> None:
    service = two_cards.service
    service.add({**PROFILE, "id": "crowded"})
    full = replace(FIRST, free_bytes=GIB // 2, lines=[f"process 1 {23 * GIB}"])
    two_cards.play(Scenario(cards=[full, SECOND]))
    refused = service.client.post("/profiles/crowded/start", params={"wait": True})
    assert refused.status_code == 409
    (found,) = (found for found in refused.json()["report"]["findings"] if found["severity"] == "error")
    assert (found["rule"], found["overridable"]) == ("device-memory", True)
    assert "CUDA0" in found["message"]
    # A judgement, so whoever knows better may launch all the same.
    forced = service.client.post("/profiles/crowded/start", params={"wait": True, "force": True})
    assert forced.status_code == 200
    service.stop("crowded")
    two_cards.play(QUIET)
    service.start("crowded")
    service.stop("crowded")


def test_what_is_loading_is_reserved_before_any_driver_shows_it(two_cards: TwoCards, tiny: TinyModels) -> None:
    service = two_cards.service
    scenario = Path(f"{tiny.draft}.scenario.json")
    scenario.write_text(json.dumps({"load_seconds": 0.5}))
    try:
        service.add({**PROFILE, "id": "holding", "target": {"path": tiny.draft.name}})
        service.client.post("/profiles/holding/start")
        held = two_cards.devices()["usage"]["CUDA0"]["reserved_bytes"]
        started = service.start("holding")
    finally:
        scenario.unlink()
    assert held == sum(started["memory"]["predicted"]["CUDA0"].values()) > 0
    # Once it serves, the driver shows its bytes, and nothing is counted twice.
    assert two_cards.devices()["usage"]["CUDA0"]["reserved_bytes"] == 0
    service.stop("holding")


def test_two_starts_at_once_are_not_both_promised_the_same_bytes(two_cards: TwoCards, tiny: TinyModels) -> None:
    """Each alone fits; together they do not, and no driver shows yet what the first one takes."""
    service = two_cards.service
    scenario = Path(f"{tiny.draft}.scenario.json")
    scenario.write_text(json.dumps({"load_seconds": 0.5}))
    placement = {"devices": ["CUDA1"], "gpu_layers": "all"}
    try:
        for name in ("left", "right"):
            service.add({"id": name, "target": {"path": tiny.draft.name}, "placement": placement})
        report = service.client.post("/profiles/left/check").json()
        needed = next(device["required_bytes"] for device in report["devices"] if device["name"] == "CUDA1")
        margin = next(device["margin_bytes"] for device in report["devices"] if device["name"] == "CUDA1")
        two_cards.play(Scenario(cards=[FIRST, replace(SECOND, free_bytes=margin + needed * 3 // 2)]))
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda name: service.client.post(f"/profiles/{name}/start"), ("left", "right")))
        assert sorted(answer.status_code for answer in answers) == [202, 409]
        refused = next(answer.json() for answer in answers if answer.status_code == 409)
        (found,) = (found for found in refused["report"]["findings"] if found["severity"] == "error")
        assert found["rule"] == "device-memory"
        reserved = next(d["reserved_bytes"] for d in refused["report"]["devices"] if d["name"] == "CUDA1")
        assert reserved == needed
    finally:
        scenario.unlink()
    for name, answer in zip(("left", "right"), answers, strict=True):
        if answer.status_code == 202:
            service.start(name)
            service.stop(name)
