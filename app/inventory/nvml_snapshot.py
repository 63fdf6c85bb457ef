"""What the NVIDIA driver said at one moment, as values. `nvml.py` asks for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Absent:
    """A value that the driver did not give, and why: `Not Supported`, `Insufficient Permissions`, `Unknown Error`, …

    `code` is NVML's number for it, None where NVML did not get to answer.
    """

    reason: str
    code: int | None = None


Reading: TypeAlias = T | Absent


def known(reading: Reading[T]) -> T | None:
    """The value, or None where it is absent."""
    return None if isinstance(reading, Absent) else reading


@dataclass(frozen=True, slots=True)
class CardMemory:
    """Memory in bytes. `total_bytes` includes what the driver keeps for itself."""

    total_bytes: int
    free_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that holds memory of a card. `used_bytes` is None where the driver does not tell.

    In a container the pid may be that of the host's numbering.
    """

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Share of the last sampling period in which something ran, and in which memory was read or written; 0 to 1."""

    busy_rate: float
    memory_rate: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz."""

    graphics_mhz: int
    sm_mhz: int
    memory_mhz: int


@dataclass(frozen=True, slots=True)
class PcieLink:
    """Generation and lanes now (idle links shrink), and at most."""

    generation: int
    width: int
    generation_max: int
    width_max: int


@dataclass(frozen=True, slots=True)
class PcieTraffic:
    """Bytes per second over the last 20 ms."""

    sent_bytes_rate: int
    received_bytes_rate: int


@dataclass(frozen=True, slots=True)
class NvlinkPeer:
    """Another card (or a switch), and how many active links lead to it."""

    pci_bus_id: str
    links: int


@dataclass(frozen=True, slots=True)
class MigSlice:
    """A part of a card that counts as a device of its own, known by its UUID only."""

    uuid: Reading[str]
    name: Reading[str]
    memory: Reading[CardMemory]
    processes: Reading[Sequence[CardProcess]]


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """One card. `traffic` costs 40 ms and is absent unless it was asked for; `mig_slices` is empty where MIG is off."""

    uuid: Reading[str]
    pci_bus_id: Reading[str]
    name: Reading[str]
    memory: Reading[CardMemory]
    processes: Reading[Sequence[CardProcess]]
    utilisation: Reading[Utilisation]
    power_watts: Reading[float]
    power_limit_watts: Reading[float]
    temperature_celsius: Reading[int]
    clocks: Reading[Clocks]
    throttle_reasons: Reading[Sequence[str]]
    pcie: Reading[PcieLink]
    traffic: Reading[PcieTraffic]
    nvlink_peers: Reading[Sequence[NvlinkPeer]]
    mig_slices: Reading[Sequence[MigSlice]]


@dataclass(frozen=True, slots=True)
class NvmlSnapshot:
    """All cards in the driver's order, which is that of the bus. `problem` says why NVML as a whole does not answer."""

    devices: Sequence[NvmlDevice] = ()
    driver_version: Reading[str] = Absent("not asked")
    problem: str | None = None

    def by_uuid(self, uuid: str) -> NvmlDevice | MigSlice | None:
        """The card or slice with that UUID."""
        for device in self.devices:
            if device.uuid == uuid:
                return device
            for part in known(device.mig_slices) or ():
                if part.uuid == uuid:
                    return part
        return None


def normal_pci_bus_id(text: str) -> str:
    """`0000:01:00.0` for any spelling of it: NVML writes eight digits of domain, others four, in either case."""
    domain, separator, rest = text.strip().lower().partition(":")
    if not separator or ":" not in rest:
        return text.strip().lower()
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
