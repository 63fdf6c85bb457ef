"""Which of the driver's cards an engine's device is: order, names, sizes, and what cannot be known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from fixtures.cards import GIB, RTX_3060, RTX_4090, UNTOLD, card, driver, listed, mig_slice

from app.inventory.device_match import match_devices
from app.inventory.devices import Device
from app.inventory.nvml_snapshot import NvmlDevice, NvmlSnapshot

BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
BIG, SMALL = card(1), card(2, RTX_3060, 12, 11)
BIG_LISTED = listed("CUDA0")
SMALL_LISTED = listed("CUDA1", RTX_3060, 11.6)


def uuids(devices: Sequence[Device]) -> list[str | None]:
    return [device.uuid for device in devices]


def test_order_of_the_bus() -> None:
    matches = match_devices([BIG_LISTED, SMALL_LISTED], driver(BIG, SMALL), BY_BUS)
    assert matches.devices == (
        replace(BIG_LISTED, uuid="GPU-1", pci_bus_id="0000:01:00.0"),
        replace(SMALL_LISTED, uuid="GPU-2", pci_bus_id="0000:02:00.0"),
    )
    assert {name: unit.card for name, unit in matches.units.items()} == {"CUDA0": BIG, "CUDA1": SMALL}
    assert matches.unlisted == ()


def test_the_driver_may_list_in_another_order_than_the_bus() -> None:
    matches = match_devices([BIG_LISTED, SMALL_LISTED], driver(SMALL, BIG), BY_BUS)
    assert uuids(matches.devices) == ["GPU-1", "GPU-2"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", ["GPU-2", "GPU-1"]),
        ("GPU-2,GPU-1", ["GPU-2", "GPU-1"]),
        ("GPU-2, 0", ["GPU-2", "GPU-1"]),
    ],
)
def test_visible_devices_reorder(visible: str, expected: list[str]) -> None:
    devices = [replace(SMALL_LISTED, name="CUDA0"), replace(BIG_LISTED, name="CUDA1")]
    matches = match_devices(devices, driver(BIG, SMALL), {**BY_BUS, "CUDA_VISIBLE_DEVICES": visible})
    assert uuids(matches.devices) == expected
    assert [device.mismatch for device in matches.devices] == [None, None]


@pytest.mark.parametrize("visible", ["1", "GPU-2", "1,-1,0", "1,9,0", "GPU-2,rubbish,0"])
def test_visible_devices_hide_and_end_at_the_first_that_means_nothing(visible: str) -> None:
    matches = match_devices(
        [replace(SMALL_LISTED, name="CUDA0")], driver(BIG, SMALL), {**BY_BUS, "CUDA_VISIBLE_DEVICES": visible}
    )
    assert uuids(matches.devices) == ["GPU-2"]
    # What is hidden on purpose is not missed.
    assert matches.unlisted == ()


def test_a_shortened_uuid() -> None:
    cards = driver(replace(BIG, uuid="GPU-ab12"), replace(SMALL, uuid="GPU-ac34"))
    one = match_devices([BIG_LISTED], cards, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "GPU-ab"})
    assert uuids(one.devices) == ["GPU-ab12"]
    # It means two cards, so CUDA shows none.
    none = match_devices([BIG_LISTED], cards, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "GPU-a"})
    assert none.devices[0].mismatch is not None


def test_a_card_that_is_not_what_the_order_says() -> None:
    devices = [replace(SMALL_LISTED, name="CUDA0"), replace(BIG_LISTED, name="CUDA1")]
    matches = match_devices(devices, driver(BIG, SMALL), BY_BUS)
    assert [device.mismatch for device in matches.devices] == [
        f"by order it would be {RTX_4090} at 0000:01:00.0, which it is not",
        f"by order it would be {RTX_3060} at 0000:02:00.0, which it is not",
    ]
    assert uuids(matches.devices) == [None, None]
    assert matches.units == {}
    assert [device.free_bytes for device in matches.devices] == [20 * GIB, 20 * GIB]


@pytest.mark.parametrize(
    ("total", "is_it"), [(24, True), (21.7, True), (21.5, False), (24.1, False), (0, True)], ids=str
)
def test_total_memory_is_compared(total: float, is_it: bool) -> None:
    (device,) = match_devices([listed("CUDA0", total=total)], driver(BIG), BY_BUS).devices
    assert (device.mismatch is None) is is_it


def test_cards_by_speed_are_matched_only_where_they_differ() -> None:
    unordered = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    differing = match_devices([SMALL_LISTED, BIG_LISTED], driver(BIG, SMALL), unordered)
    assert uuids(differing.devices) == ["GPU-2", "GPU-1"]
    twins = match_devices([listed("CUDA0"), listed("CUDA1")], driver(card(1), card(2)), unordered)
    assert uuids(twins.devices) == [None, None]
    assert twins.devices[0].mismatch == (
        "the order of devices is not known here, and among the driver's cards "
        f"({RTX_4090} at 0000:01:00.0, {RTX_4090} at 0000:02:00.0) 2 are like it"
    )


def test_an_engine_that_lists_fewer_cards_than_are_visible() -> None:
    matches = match_devices([BIG_LISTED], driver(BIG, SMALL), BY_BUS)
    assert uuids(matches.devices) == ["GPU-1"]
    assert [unit.card for unit in matches.unlisted] == [SMALL]
    twins = match_devices([BIG_LISTED], driver(card(1), card(2)), BY_BUS)
    assert twins.devices[0].mismatch is not None


def test_an_engine_without_a_device_for_a_card() -> None:
    matches = match_devices([], driver(BIG), BY_BUS)
    assert [unit.name for unit in matches.unlisted] == [RTX_4090]


@pytest.mark.parametrize(
    ("named", "uuid"),
    [
        ({"pci_bus_id": "00000000:02:00.0"}, "GPU-2"),
        ({"pci_bus_id": "0000:01:00.0"}, "GPU-1"),
        ({"uuid": "GPU-2"}, "GPU-2"),
    ],
)
def test_an_id_goes_before_the_order(named: Mapping[str, str], uuid: str) -> None:
    device = replace(listed("Vulkan0"), **named)
    matches = match_devices([device], driver(card(1), card(2)), {})
    assert uuids(matches.devices) == [uuid]
    assert matches.units["Vulkan0"].uuid == uuid


def test_an_id_that_the_driver_does_not_show() -> None:
    (device,) = match_devices([replace(BIG_LISTED, pci_bus_id="0000:0A:00.0")], driver(BIG), BY_BUS).devices
    assert device.mismatch == "the driver shows no card 0000:0a:00.0"


A100 = "NVIDIA A100-SXM4-80GB"
HALF = mig_slice("MIG-aa", f"{A100} MIG 3g.40gb", 39.5, 30)
TENTH = mig_slice("MIG-bb", f"{A100} MIG 1g.10gb", 9.5, 9)
DIVIDED = card(1, A100, 80, 70, mig_slices=(HALF, TENTH))


def test_a_slice_by_its_uuid() -> None:
    device = listed("CUDA0", f"{A100} MIG 1g.10gb", 9.4)
    matches = match_devices([device], driver(DIVIDED), {**BY_BUS, "CUDA_VISIBLE_DEVICES": "MIG-bb"})
    assert uuids(matches.devices) == ["MIG-bb"]
    assert matches.units["CUDA0"].memory == TENTH.memory


def test_a_slice_that_cuda_chose_is_known_only_when_no_other_is_like_it() -> None:
    device = listed("CUDA0", f"{A100} MIG 3g.40gb", 39)
    assert uuids(match_devices([device], driver(DIVIDED), BY_BUS).devices) == ["MIG-aa"]
    twins = card(1, A100, 80, 70, mig_slices=(HALF, replace(HALF, uuid="MIG-cc")))
    (unknown,) = match_devices([device], driver(twins), BY_BUS).devices
    assert unknown.uuid is None
    assert unknown.mismatch is not None


def test_a_divided_card_by_its_bus_id_is_the_slice_of_that_size() -> None:
    device = replace(listed("CUDA0", f"{A100} MIG 3g.40gb", 39), pci_bus_id="0000:01:00.0")
    assert uuids(match_devices([device], driver(DIVIDED), BY_BUS).devices) == ["MIG-aa"]


def test_a_card_that_says_nothing_is_not_taken_for_one() -> None:
    lost = NvmlDevice(*(UNTOLD for _ in NvmlDevice.__dataclass_fields__))
    (device,) = match_devices([BIG_LISTED], driver(lost), BY_BUS).devices
    assert device.mismatch == "by order it would be a card, which it is not"


@pytest.mark.parametrize("nvml", [driver(), driver(BIG), NvmlSnapshot(problem="NVML does not start")])
@pytest.mark.parametrize("name", ["Vulkan0", "ROCm0", "MTL0", "SYCL0", "RPC0"])
def test_other_backends_stand_on_the_engines_list_alone(name: str, nvml: NvmlSnapshot) -> None:
    device = listed(name, "AMD Radeon RX 7900 XTX")
    matches = match_devices([device], nvml, BY_BUS)
    assert matches.devices == (device,)
    assert matches.units == {}


def test_cuda_without_a_driver_to_ask_stands_on_the_list_too() -> None:
    assert match_devices([BIG_LISTED], NvmlSnapshot(problem="no library"), BY_BUS).devices == (BIG_LISTED,)


def test_a_card_that_another_backend_lists_is_not_missed() -> None:
    assert match_devices([listed("Vulkan0", RTX_4090)], driver(BIG), BY_BUS).unlisted == ()
