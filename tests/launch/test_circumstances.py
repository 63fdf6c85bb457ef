"""What is promised to launches, and what a driver shows of it already."""

from app.inventory.devices import Device, Machine, MemoryHolder
from app.launch.circumstances import OtherLaunches

MIB = 1 << 20


def reserved_mib(*holders: MemoryHolder) -> int:
    """Of 500 MiB that are promised to what loads as pid 7, and 100 MiB to one whose process is not known."""
    others = OtherLaunches({"CUDA0": 600 * MIB, "host": 8}, {}, loading={7: {"CUDA0": 500 * MIB, "host": 8}})
    seen = others.not_seen_on(Machine([Device("CUDA0", own_holders=holders)]))
    assert seen.reserved["host"] == 8
    return seen.reserved["CUDA0"] // MIB


def test_what_the_driver_shows_of_a_load_is_not_promised_beside_that() -> None:
    assert reserved_mib() == 600
    assert reserved_mib(MemoryHolder(7, 200 * MIB)) == 400
    assert reserved_mib(MemoryHolder(7, 900 * MIB)) == 100
    assert reserved_mib(MemoryHolder(7, None)) == 600
    assert reserved_mib(MemoryHolder(8, 300 * MIB)) == 600, "that one has loaded: nothing is promised to it any more"
