"""Devices and host as values: what a placement is judged against."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """A process that holds memory of a device; `used_bytes` is None where the driver does not tell."""

    pid: int
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One device as the engine names it (`CUDA0`, `Vulkan1`, `RPC0`, …); memory in bytes, 0 where it is not told.

    `uuid` and `pci_bus_id` are known only where a driver was asked too; `uuid` may be that of a MIG slice. The memory
    of an `integrated` device is the host's: both figures are about one budget. `holders` are processes that are not
    ours, `own_holders` our engines. `mismatch` says why the driver's figures could not be attached to this device. The
    figures of an `is_stale` device are from before our own engines took memory of it: it cannot be asked while they
    live.
    """

    name: str
    description: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    integrated: bool = False
    holders: Sequence[MemoryHolder] = ()
    own_holders: Sequence[MemoryHolder] = ()
    mismatch: str | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """The machine around the devices, within a container's limits; None where a figure cannot be known."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    physical_cores: int | None = None
    numa_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices in the engine's order, and the host.

    `unlisted` describes cards that the driver shows and the engine does not list. `driver_problem` says why a driver
    that answered before does not answer now. Raises ValueError where two devices have one name: plans go by name.
    """

    devices: Sequence[Device] = ()
    host: Host = Host()
    unlisted: Sequence[str] = ()
    driver_problem: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.device_names)) != len(self.devices):
            raise ValueError(f"two devices have one name: {', '.join(self.device_names)}")

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names a profile may use, in the engine's order."""
        return tuple(device.name for device in self.devices)

    @property
    def unified_names(self) -> tuple[str, ...]:
        """Devices that share one budget with the host: what they take is not there for it, and the other way round."""
        return tuple(device.name for device in self.devices if device.integrated)
