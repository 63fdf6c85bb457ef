"""The machine that launches are judged against: whose figures count, how fresh they are, and silent drivers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from fixtures.cards import GIB, RTX_3060, RTX_4090, UNTOLD, card, driver, listed

from app.inventory.devices import Device, Host, Machine, MemoryHolder
from app.inventory.listing import DeviceListing
from app.inventory.machine import MachineReader
from app.inventory.nvml_snapshot import Absent, CardProcess, NvmlDevice, NvmlSnapshot

HOST = Host(64 * GIB, 40 * GIB, 8, 1)
NO_DRIVER = NvmlSnapshot(problem="NVML does not start: NVML Shared Library Not Found")
SILENT = NvmlSnapshot(problem="NVML answers for no card: Unknown Error")


@dataclass
class World:
    """An engine, a driver and a host that a test can change."""

    probed: Sequence[Device] = ()
    fresh: Sequence[Device] = ()
    nvml: NvmlSnapshot = NO_DRIVER
    ours: frozenset[int] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: list[Mapping[str, str]] = field(default_factory=list)

    def reader(self) -> MachineReader:
        async def known_devices() -> Sequence[Device]:
            return self.probed

        async def list_devices(env: Mapping[str, str], *, with_rpc: bool) -> Sequence[Device]:
            assert with_rpc
            self.asked.append(env)
            return self.fresh

        async def read_nvml(*, traffic: bool = False) -> NvmlSnapshot:
            return self.nvml

        listing = DeviceListing(known_devices=known_devices, list_devices=list_devices, is_in_use=lambda: False)
        return MachineReader(
            listing=listing, read_nvml=read_nvml, host=lambda: HOST, ours=lambda: self.ours,
            environment=self.environment,
        )  # fmt: skip


async def test_the_driver_says_what_is_free_now() -> None:
    world = World([listed("CUDA0", free=23)], nvml=driver(card(1, free=5.25)))
    (device,) = (await world.reader().now()).devices
    assert device == Device("CUDA0", RTX_4090, int(23.5 * GIB), int(5.25 * GIB), "GPU-1", "0000:01:00.0")
    assert world.asked == []


async def test_never_more_is_free_than_the_engine_sees() -> None:
    world = World([listed("CUDA0", total=23.5)], nvml=driver(card(1, total=24, free=23.9)))
    (device,) = (await world.reader().now()).devices
    assert device.free_bytes == device.total_bytes == int(23.5 * GIB)


async def test_without_a_driver_the_engine_is_asked_afresh() -> None:
    radeon = listed("Vulkan0", "AMD Radeon RX 7900 XTX", 24, 23)
    world = World([radeon], fresh=[replace(radeon, free_bytes=7 * GIB)])
    assert (await world.reader().now()).devices[0].free_bytes == 7 * GIB
    assert world.asked == [{}]


async def test_an_engine_without_devices_is_not_asked_again() -> None:
    world = World(nvml=driver(card(1)))
    machine = await world.reader().now()
    assert machine.devices == ()
    assert machine.unlisted == (RTX_4090,)
    assert machine.host == HOST
    assert world.asked == []


async def test_a_device_that_cannot_be_matched_keeps_the_engines_figures_of_now() -> None:
    world = World([listed("CUDA0", RTX_3060, 11.5)], fresh=[listed("CUDA0", RTX_3060, 11.5, 3)], nvml=driver(card(1)))
    (device,) = (await world.reader().now()).devices
    assert device.free_bytes == 3 * GIB
    assert device.mismatch == f"by order it would be {RTX_4090} at 0000:01:00.0, which it is not"
    assert world.asked == [{}]


async def test_memory_that_the_driver_will_not_tell_is_asked_of_the_engine() -> None:
    hidden = card(1, memory=Absent("Insufficient Permissions", 4))
    world = World([listed("CUDA0")], fresh=[listed("CUDA0", free=2)], nvml=driver(hidden))
    (device,) = (await world.reader().now()).devices
    assert (device.free_bytes, device.integrated, device.uuid) == (2 * GIB, False, "GPU-1")


async def test_variables_of_a_profile_change_what_is_seen() -> None:
    big, small = card(1), card(2, RTX_3060, 12, 11)
    world = World(
        [listed("CUDA0"), listed("CUDA1", RTX_3060, 11.6)],
        fresh=[listed("CUDA0", RTX_3060, 11.6)],
        nvml=driver(big, small),
        environment={"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
    )
    reader = world.reader()
    # What the service inherits counts, but for the order, which each launch is told.
    assert [device.uuid for device in (await reader.now({"OMP_NUM_THREADS": "4"})).devices] == ["GPU-1", "GPU-2"]
    assert world.asked == []
    chosen = await reader.now({"CUDA_VISIBLE_DEVICES": "1"})
    assert [(device.name, device.uuid, device.free_bytes) for device in chosen.devices] == [
        ("CUDA0", "GPU-2", 11 * GIB)
    ]
    assert world.asked == [{"CUDA_VISIBLE_DEVICES": "1"}]


async def test_holders_are_told_apart_by_whose_they_are() -> None:
    processes = (CardProcess(10, GIB), CardProcess(11, 2 * GIB), CardProcess(12, None), CardProcess(13, 0))
    world = World([listed("CUDA0")], nvml=driver(card(1, processes=processes)), ours=frozenset({10}))
    (device,) = (await world.reader().now()).devices
    assert device.holders == (MemoryHolder(11, 2 * GIB), MemoryHolder(12, None))
    assert device.own_holders == (MemoryHolder(10, GIB),)


async def test_a_card_without_memory_of_its_own_takes_from_the_host() -> None:
    world = World([listed("CUDA0", "NVIDIA GB10", 119, 100)], nvml=driver(card(1, "NVIDIA GB10", memory=UNTOLD)))
    machine = await world.reader().now()
    (device,) = machine.devices
    assert (device.integrated, device.total_bytes, device.free_bytes) == (True, 119 * GIB, 40 * GIB)
    assert machine.unified_names == ("CUDA0",)
    # The engine's own figure is that of the host, once.
    assert world.asked == []


async def test_an_integrated_device_of_another_maker() -> None:
    apple = listed("MTL0", "Apple M3 Max", 96, 90)
    world = World([apple], fresh=[replace(apple, free_bytes=30 * GIB)])
    (device,) = (await world.reader().now()).devices
    assert (device.integrated, device.free_bytes) == (True, 30 * GIB)


async def test_a_driver_that_never_answered_is_no_problem() -> None:
    assert (await World().reader().now()).driver_problem is None
    assert (await World(nvml=SILENT).reader().now()).driver_problem is None


async def test_a_driver_that_falls_silent_is_said_until_it_is_back() -> None:
    world = World([listed("CUDA0", free=23)], fresh=[listed("CUDA0", free=2)], nvml=driver(card(1, free=9)))
    reader = world.reader()
    assert (await reader.now()).driver_problem is None
    unknown = Absent("Unknown Error", 999)
    silent_card = NvmlDevice(*(unknown for _ in NvmlDevice.__dataclass_fields__))
    world.nvml = replace(SILENT, devices=(silent_card,))
    machine = await reader.now()
    assert machine.driver_problem == "NVML answers for no card: Unknown Error"
    assert machine.devices[0].free_bytes == 2 * GIB
    world.nvml = driver(card(1, free=9))
    machine = await reader.now()
    assert machine.driver_problem is None
    assert machine.devices[0].free_bytes == 9 * GIB


async def test_the_drivers_units_come_along_for_who_shows_them() -> None:
    world = World(
        [listed("CUDA0"), listed("RPC0", "127.0.0.1:50052", 8, 8)], fresh=[listed("CUDA0")], nvml=driver(card(1))
    )
    world.fresh = world.probed
    seen = await world.reader().look()
    assert {name: unit.uuid for name, unit in seen.units.items()} == {"CUDA0": "GPU-1"}
    assert seen.nvml == world.nvml


async def test_an_engine_that_says_more_is_free_than_there_is() -> None:
    world = World([], fresh=[])
    world.probed = world.fresh = [listed("Vulkan0", "AMD Radeon RX 7900 XTX", 24, 25)]
    (device,) = (await world.reader().now()).devices
    assert device.free_bytes == device.total_bytes == 24 * GIB


def test_two_devices_of_one_name_are_no_machine() -> None:
    with pytest.raises(ValueError, match="two devices have one name: CUDA0, CUDA0"):
        Machine([listed("CUDA0"), listed("CUDA0")])
