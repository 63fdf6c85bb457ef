"""Devices and host as values: what a placement is judged against."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One device as the engine names it (`CUDA0`, `Vulkan1`, `RPC0`, …); memory in bytes, 0 where it is not told.

    `uuid` and `pci_bus_id` are known only where a driver was asked too.
    """

    name: str
    description: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    integrated: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """The machine around the devices; None where a figure cannot be known."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    physical_cores: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices in the engine's order, and the host."""

    devices: Sequence[Device] = ()
    host: Host = Host()

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names a profile may use, in the engine's order."""
        return tuple(device.name for device in self.devices)
