"""nvidia-ml-py against the stub library: every value, every way to fail, and recovery."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path

import pytest
from fakes.nvml import (
    DRIVER_NOT_LOADED,
    FIGURES,
    FUNCTION_NOT_FOUND,
    GIB,
    GPU_IS_LOST,
    MIB,
    NO_PERMISSION,
    UNKNOWN_ERROR,
    Card,
    Scenario,
)
from fakes.nvml.process import NvmlProcess, nvml_process

from app.inventory.nvml_snapshot import (
    Absent,
    CardMemory,
    CardProcess,
    Clocks,
    MigSlice,
    NvlinkPeer,
    NvmlDevice,
    NvmlSnapshot,
    PcieLink,
    PcieTraffic,
    Utilisation,
    normal_pci_bus_id,
)

FIRST = Card(uuid="GPU-1", pci="00000000:01:00.0")
SECOND = Card(
    uuid="GPU-2", pci="00000000:41:00.0", name="NVIDIA GeForce RTX 3060", total_bytes=12 * GIB, free_bytes=11 * GIB
)

Play = Callable[[Scenario], NvmlProcess]


@pytest.fixture
def scenario_path(tmp_path: Path) -> Path:
    return tmp_path / "scenario"


@pytest.fixture
def play(nvml_library: Path, scenario_path: Path) -> Iterator[Play]:
    """A process that sees the machine of a scenario."""
    with ExitStack() as stack:

        def begin(scenario: Scenario) -> NvmlProcess:
            scenario.write(scenario_path)
            return stack.enter_context(nvml_process(nvml_library, scenario_path))

        yield begin


def test_everything_that_a_card_tells(play: Play) -> None:
    figures = {
        **FIGURES, "util_gpu": 97, "util_memory": 41, "throttle_bits": 0x204, "pcie_generation": 4, "pcie_width": 8,
        "pcie_sent_kilobytes": 1_500, "pcie_received_kilobytes": 12_000_000,
    }  # fmt: skip
    links = ("nvlink 0 00000000:41:00.0", "nvlink 1 00000000:41:00.0", "nvlink 3 00000000:C1:00.0")
    held = ("process 4242 1073741824", "process 77 -", "graphics 4242 1500000000", "graphics 1 2048")
    snapshot = play(Scenario(cards=[replace(FIRST, figures=figures, lines=(*links, *held))])).read(traffic=True)
    assert snapshot.problem is None
    assert snapshot.driver_version == "580.95.05"
    not_supported = Absent("Not Supported", 3)
    assert snapshot.devices == (
        NvmlDevice(
            uuid="GPU-1",
            pci_bus_id="0000:01:00.0",
            name="NVIDIA GeForce RTX 4090",
            memory=CardMemory(24564 * MIB, 24000 * MIB, 564 * MIB),
            processes=(CardProcess(1, 2048), CardProcess(77, None), CardProcess(4242, 1_500_000_000)),
            utilisation=Utilisation(0.97, 0.41),
            power_watts=21.5,
            power_limit_watts=450.0,
            temperature_celsius=37,
            clocks=Clocks(210, 210, 405),
            throttle_reasons=("software-power-cap", "reason-0x200"),
            pcie=PcieLink(4, 8, 4, 16),
            traffic=PcieTraffic(1_500_000, 12_000_000_000),
            nvlink_peers=(NvlinkPeer("0000:41:00.0", 2), NvlinkPeer("0000:c1:00.0", 1)),
            mig_slices=not_supported,
        ),
    )


def test_traffic_is_left_out_unless_asked_for(play: Play) -> None:
    (card,) = play(Scenario(cards=[FIRST])).read().devices
    assert card.traffic == Absent("not asked")


def test_what_a_card_does_not_support_is_absent_with_its_reason(play: Play) -> None:
    bare = replace(FIRST, figures={}, total_bytes=None)
    (card,) = play(Scenario(cards=[bare])).read(traffic=True).devices
    given = {field.name for field in fields(card) if not isinstance(getattr(card, field.name), Absent)}
    assert given == {"uuid", "pci_bus_id", "name", "processes"}
    assert card.memory == card.power_watts == card.pcie == card.traffic == Absent("Not Supported", 3)


FUNCTIONS = {
    "nvmlDeviceGetUUID": "uuid", "nvmlDeviceGetName": "name", "nvmlDeviceGetPciInfo_v3": "pci_bus_id",
    "nvmlDeviceGetMemoryInfo": "memory", "nvmlDeviceGetComputeRunningProcesses_v3": "processes",
    "nvmlDeviceGetUtilizationRates": "utilisation", "nvmlDeviceGetPowerUsage": "power_watts",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_watts", "nvmlDeviceGetTemperature": "temperature_celsius",
    "nvmlDeviceGetClockInfo": "clocks", "nvmlDeviceGetCurrentClocksEventReasons": "throttle_reasons",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie", "nvmlDeviceGetMaxPcieLinkWidth": "pcie",
    "nvmlDeviceGetPcieThroughput": "traffic", "nvmlDeviceGetNvLinkState": "nvlink_peers",
    "nvmlDeviceGetMigMode": "mig_slices",
}  # fmt: skip


def test_each_call_may_fail_by_itself(play: Play, scenario_path: Path) -> None:
    with_link = replace(FIRST, lines=("nvlink 0 00000000:41:00.0", "figure mig 0"))
    asked = play(Scenario(cards=[with_link]))
    whole = asked.read(traffic=True).devices[0]
    for function, name in FUNCTIONS.items():
        Scenario(cards=[with_link], lines=[f"error {function} {NO_PERMISSION}"]).write(scenario_path)
        snapshot = asked.read(traffic=True)
        reason = Absent("Insufficient Permissions", NO_PERMISSION)
        assert snapshot == NvmlSnapshot((replace(whole, **{name: reason}),), "580.95.05"), function


def test_an_error_of_one_card_leaves_the_others_alone(play: Play) -> None:
    lost = replace(FIRST, lines=[f"error nvmlDeviceGetHandleByIndex_v2 {GPU_IS_LOST}"])
    snapshot = play(Scenario(cards=[lost, SECOND])).read()
    assert snapshot.problem is None
    first, second = snapshot.devices
    assert {getattr(first, field.name) for field in fields(first)} == {Absent("GPU is lost", GPU_IS_LOST)}
    assert second.memory == CardMemory(12 * GIB, 11 * GIB, GIB)


def test_an_old_driver_without_a_function(play: Play) -> None:
    missing = [
        f"error {name} {FUNCTION_NOT_FOUND}"
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetComputeRunningProcesses_v3")
    ]
    (card,) = play(Scenario(cards=[FIRST], lines=missing)).read().devices
    # The older name of the same question answers.
    assert card.throttle_reasons == ("idle",)
    assert card.processes == Absent("Function Not Found", FUNCTION_NOT_FOUND)


def test_a_number_of_error_that_the_library_alone_can_name(play: Play) -> None:
    (card,) = play(Scenario(cards=[FIRST], lines=["error nvmlDeviceGetName 4711"])).read().devices
    assert card.name == Absent("an error of the stub", 4711)


def test_slices_are_known_by_their_uuid(play: Play) -> None:
    card = replace(
        FIRST,
        name="NVIDIA A100-SXM4-80GB",
        total_bytes=80 * GIB,
        free_bytes=60 * GIB,
        lines=[
            f"error nvmlDeviceGetMemoryInfo {NO_PERMISSION}",
            "slice", "uuid MIG-a", "name NVIDIA A100-SXM4-80GB MIG 3g.40gb", f"memory {40 * GIB} {30 * GIB}",
            "process 9 1024",
            "slice", "uuid MIG-b", "name NVIDIA A100-SXM4-80GB MIG 1g.10gb", f"memory {10 * GIB} {10 * GIB}",
        ],
    )  # fmt: skip
    snapshot = play(Scenario(cards=[card])).read()
    first = MigSlice(
        "MIG-a", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", CardMemory(40 * GIB, 30 * GIB, 10 * GIB), (CardProcess(9, 1024),)
    )
    second = MigSlice("MIG-b", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", CardMemory(10 * GIB, 10 * GIB, 0), ())
    assert snapshot.devices[0].mig_slices == (first, second)
    assert snapshot.by_uuid("MIG-b") == second
    assert snapshot.by_uuid("GPU-1") == snapshot.devices[0]
    assert snapshot.by_uuid("MIG-c") is None


def test_without_a_library(tmp_path: Path) -> None:
    with nvml_process(None, tmp_path / "none") as asked:
        assert asked.read() == NvmlSnapshot(problem="NVML does not start: NVML Shared Library Not Found")


def test_a_driver_that_is_loaded_later(play: Play, scenario_path: Path) -> None:
    asked = play(Scenario(lines=[f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}"]))
    assert asked.read().problem == "NVML does not start: Driver Not Loaded"
    Scenario(cards=[FIRST]).write(scenario_path)
    assert asked.read().devices[0].uuid == "GPU-1"


def test_nvml_fails_while_running_and_comes_back(play: Play, scenario_path: Path) -> None:
    asked = play(Scenario(cards=[FIRST, SECOND]))
    assert asked.read().problem is None
    everything = ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName")
    broken = Scenario(cards=[FIRST, SECOND], lines=[f"error {name} {UNKNOWN_ERROR}" for name in everything])
    broken.write(scenario_path)
    snapshot = asked.read()
    assert snapshot.problem == "NVML answers for no card: Unknown Error"
    assert snapshot.devices[0].memory == Absent("Unknown Error", UNKNOWN_ERROR)
    Scenario(cards=[FIRST, SECOND], lines=[f"error nvmlDeviceGetCount_v2 {UNKNOWN_ERROR}"]).write(scenario_path)
    assert asked.read().problem == "NVML does not list cards: Unknown Error"
    Scenario(cards=[FIRST, SECOND]).write(scenario_path)
    assert [card.uuid for card in asked.read().devices] == ["GPU-1", "GPU-2"]


def test_a_new_initialisation_helps_within_the_same_reading(play: Play) -> None:
    # The first question fails, what is asked after the new initialisation does not.
    asked = play(Scenario(cards=[FIRST], lines=[f"error nvmlDeviceGetMemoryInfo {UNKNOWN_ERROR} 1 1"]))
    assert asked.read().devices[0].memory == CardMemory(24564 * MIB, 24000 * MIB, 564 * MIB)


def test_a_fruitless_initialisation_is_not_repeated_at_once(nvml_library: Path, scenario_path: Path) -> None:
    # Each reading that initialises anew asks twice for memory.
    Scenario(cards=[FIRST], lines=[f"error nvmlDeviceGetMemoryInfo {UNKNOWN_ERROR} 1 3"]).write(scenario_path)
    with nvml_process(nvml_library, scenario_path, pause_seconds=3600) as asked:
        problems = [asked.read().problem for _ in range(3)]
    assert problems == ["NVML answers for no card: Unknown Error"] * 2 + [None]


def test_memory_that_is_freed_in_steps(play: Play) -> None:
    asked = play(Scenario(cards=[replace(FIRST, lines=(f"step 2 {5 * GIB}", f"step 4 {9 * GIB}"), free_bytes=GIB)]))
    memories = [asked.read().devices[0].memory for _ in range(5)]
    assert [memory.free_bytes // GIB for memory in memories if isinstance(memory, CardMemory)] == [1, 5, 5, 9, 9]


def test_memory_that_a_living_process_holds(play: Play, scenario_path: Path) -> None:
    card = replace(FIRST, free_bytes=20 * GIB, lines=(f"alive {os.getpid()} {8 * GIB}",))
    asked = play(Scenario(cards=[card]))
    (seen,) = asked.read().devices
    assert seen.memory == CardMemory(24564 * MIB, 12 * GIB, 24564 * MIB - 12 * GIB)
    assert seen.processes == (CardProcess(os.getpid(), 8 * GIB),)
    # No process has the largest number there can be.
    Scenario(cards=[replace(card, lines=(f"alive {2**22} {8 * GIB}",))]).write(scenario_path)
    (seen,) = asked.read().devices
    assert seen.memory == CardMemory(24564 * MIB, 20 * GIB, 24564 * MIB - 20 * GIB)
    assert seen.processes == ()


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00010000:02:00.0", "10000:02:00.0"),
        ("0001:02:00.0", "0001:02:00.0"),
        ("nothing", "nothing"),
    ],
)
def test_one_spelling_of_a_bus_id(text: str, normal: str) -> None:
    assert normal_pci_bus_id(text) == normal
