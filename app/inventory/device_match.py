"""The engine's devices matched to the driver's cards. Pure.

The engine lists names and memory only, so its CUDA devices are matched by order: both count by bus (launches set
`CUDA_DEVICE_ORDER=PCI_BUS_ID`), and `CUDA_VISIBLE_DEVICES` chooses and reorders. Each match is checked by name and by
total memory; what cannot be matched is said, and keeps the engine's own figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.inventory.devices import Device
from app.inventory.nvml_snapshot import (
    CardMemory,
    CardProcess,
    MigSlice,
    NvmlDevice,
    NvmlSnapshot,
    Reading,
    known,
    normal_pci_bus_id,
)

VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"
ORDER_OF_BUS: Final = "PCI_BUS_ID"
_CUDA: Final = "CUDA"
# CUDA leaves out what the driver keeps for itself: 2 % of a large card, 4 % of a small one.
_TOTAL_LEAST_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Unit:
    """What CUDA can count as a device: a card, or a slice of one."""

    card: NvmlDevice
    part: MigSlice | None = None

    @property
    def uuid(self) -> str | None:
        """The UUID of the slice, or else of the card."""
        return known((self.part or self.card).uuid)

    @property
    def name(self) -> str | None:
        """As the driver calls it."""
        return known((self.part or self.card).name)

    @property
    def memory(self) -> Reading[CardMemory]:
        """Its own, never that of the whole card."""
        return (self.part or self.card).memory

    @property
    def processes(self) -> Reading[Sequence[CardProcess]]:
        """Who holds its memory."""
        return (self.part or self.card).processes


@dataclass(frozen=True, slots=True)
class DeviceMatches:
    """`devices` are the engine's, with UUID and PCI id where known; `units` the driver's, by device name.

    `unlisted` is what the driver shows and the engine does not list.
    """

    devices: Sequence[Device]
    units: Mapping[str, Unit]
    unlisted: Sequence[Unit]


def match_devices(devices: Sequence[Device], nvml: NvmlSnapshot, environment: Mapping[str, str]) -> DeviceMatches:
    """Match by PCI id or UUID where the engine tells one, else by order under the engine's environment."""
    visible = _visible(nvml, environment)
    counted = [device for device in devices if device.name.startswith(_CUDA) and not _is_named(device)]
    in_order = _in_order(counted, visible, environment)
    units: dict[str, Unit] = {}
    matched: list[Device] = []
    for device in devices:
        if _is_named(device):
            found = _by_id(device, nvml)
        elif device.name.startswith(_CUDA) and nvml.devices:
            found = in_order[device.name]
        else:
            matched.append(device)
            continue
        if isinstance(found, str):
            matched.append(replace(device, mismatch=found))
            continue
        units[device.name] = found
        bus_id = device.pci_bus_id or known(found.card.pci_bus_id)
        matched.append(replace(device, uuid=found.uuid or device.uuid, pci_bus_id=bus_id))
    return DeviceMatches(tuple(matched), units, tuple(_left(visible, matched, units)))


def _is_named(device: Device) -> bool:
    return device.pci_bus_id is not None or device.uuid is not None


def _units(nvml: NvmlSnapshot) -> list[Unit]:
    """Cards in the order of the bus; one that is divided counts by its slices."""
    places = [known(card.pci_bus_id) for card in nvml.devices]
    cards = list(nvml.devices)
    if None not in places:
        cards.sort(key=lambda card: known(card.pci_bus_id) or "")
    return [unit for card in cards for unit in _units_of(card)]


def _units_of(card: NvmlDevice) -> list[Unit]:
    return [Unit(card, part) for part in known(card.mig_slices) or ()] or [Unit(card)]


def _visible(nvml: NvmlSnapshot, environment: Mapping[str, str]) -> list[Unit]:
    """What the engine sees, in its order. As CUDA does, a list ends at the first word that means nothing."""
    everything = _units(nvml)
    words = environment.get(VISIBLE_VARIABLE)
    if words is None:
        return everything
    chosen: list[Unit] = []
    for word in words.split(","):
        found = _meant(word.strip(), everything)
        if found is None:
            break
        chosen.append(found)
    return chosen


def _meant(word: str, everything: Sequence[Unit]) -> Unit | None:
    """An index counts cards; a UUID may be shortened as long as it means one card only."""
    if word.isdecimal():
        cards = list({id(unit.card): unit for unit in reversed(everything)}.values())[::-1]
        return cards[int(word)] if int(word) < len(cards) else None
    if not word.startswith(("GPU-", "MIG-")):
        return None
    found = [unit for unit in everything if (unit.uuid or "").startswith(word)]
    return found[0] if len(found) == 1 else None


def _in_order(
    devices: Sequence[Device], visible: Sequence[Unit], environment: Mapping[str, str]
) -> dict[str, Unit | str]:
    """For each CUDA device its unit, or why there is none."""
    words = [word.strip() for word in environment.get(VISIBLE_VARIABLE, "").split(",")]
    by_uuid = all(word.startswith(("GPU-", "MIG-")) for word in words)
    is_by_bus = environment.get(ORDER_VARIABLE) == ORDER_OF_BUS and all(unit.part is None for unit in visible)
    if len(devices) == len(visible) and (is_by_bus or by_uuid):
        return {device.name: _checked(device, unit) for device, unit in zip(devices, visible, strict=True)}
    return {device.name: _only_one_alike(device, devices, visible) for device in devices}


def _checked(device: Device, unit: Unit) -> Unit | str:
    return unit if _is_alike(device, unit) else f"by order it would be {_described(unit)}, which it is not"


def _only_one_alike(device: Device, devices: Sequence[Device], visible: Sequence[Unit]) -> Unit | str:
    """Where the order says nothing a device is matched only when there is no other like it on either side."""
    alike = [unit for unit in visible if _is_alike(device, unit)]
    if len(alike) == 1 and sum(_is_alike(other, alike[0]) for other in devices) == 1:
        return alike[0]
    shown = ", ".join(map(_described, visible)) or "none"
    return f"the order of devices is not known here, and among the driver's cards ({shown}) {len(alike)} are like it"


def _by_id(device: Device, nvml: NvmlSnapshot) -> Unit | str:
    wanted = normal_pci_bus_id(device.pci_bus_id) if device.pci_bus_id else None
    everything = _units(nvml)
    found = [unit for unit in everything if device.uuid is not None and unit.uuid == device.uuid]
    found = found or [unit for unit in everything if wanted is not None and known(unit.card.pci_bus_id) == wanted]
    if len(found) > 1:
        return _only_one_alike(device, (device,), found)
    return found[0] if found else f"the driver shows no card {device.uuid or wanted}"


def _is_alike(device: Device, unit: Unit) -> bool:
    memory = known(unit.memory)
    if unit.name is None and memory is None:
        return False
    theirs, ours = _plain(unit.name or ""), _plain(device.description)
    if theirs and ours and theirs != ours:
        return False
    if memory is None or not device.total_bytes:
        return True
    return _TOTAL_LEAST_SHARE * memory.total_bytes <= device.total_bytes <= memory.total_bytes


def _plain(name: str) -> str:
    return name.casefold().removeprefix("nvidia ").strip()


def _described(unit: Unit) -> str:
    bus_id = known(unit.card.pci_bus_id)
    return f"{unit.name or unit.uuid or 'a card'}{f' at {bus_id}' if bus_id else ''}"


def _left(visible: Sequence[Unit], devices: Sequence[Device], units: Mapping[str, Unit]) -> list[Unit]:
    """Units that the engine does not list; none where it is not known which device is which card.

    Other backends list the same card under its name.
    """
    if any(device.mismatch for device in devices):
        return []
    taken = {id(unit.part or unit.card) for unit in units.values()}
    names = {_plain(device.description) for device in devices}
    return [
        unit for unit in visible if id(unit.part or unit.card) not in taken and _plain(unit.name or "") not in names
    ]
