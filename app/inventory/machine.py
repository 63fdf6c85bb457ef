"""The machine as it is now: the engine's devices with the driver's figures, and the host."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from app.inventory.device_match import ORDER_OF_BUS, ORDER_VARIABLE, Unit, match_devices
from app.inventory.devices import Device, Host, Machine, MemoryHolder
from app.inventory.integrated import is_integrated
from app.inventory.listing import DeviceListing
from app.inventory.nvml_snapshot import Absent, CardProcess, NvmlSnapshot, known

_NOT_SUPPORTED: Final = 3
# What decides which devices an engine sees, in which order, and what it says of their memory.
_DECIDING: Final = frozenset(
    {
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "GGML_CUDA_DEVICES",
        "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
        "GGML_METAL_DEVICES",
        "GGML_OPENCL_DEVICE",
        "GGML_VK_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ONEAPI_DEVICE_SELECTOR",
        "ROCR_VISIBLE_DEVICES",
    }
)


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """A machine, and beside it what only people and dashboards want. `units` are the driver's, by device name."""

    machine: Machine
    units: Mapping[str, Unit]
    nvml: NvmlSnapshot


class MachineReader:
    """Gives the machine that launches are judged against.

    `ours` are the pids of our own engines, `environment` is what every engine inherits.
    """

    def __init__(
        self,
        *,
        listing: DeviceListing,
        read_nvml: Callable[..., Awaitable[NvmlSnapshot]],
        host: Callable[[], Host],
        ours: Callable[[], AbstractSet[int]],
        environment: Mapping[str, str],
    ) -> None:
        self._listing = listing
        self._read_nvml = read_nvml
        self._host = host
        self._ours = ours
        self._environment = {**environment, ORDER_VARIABLE: ORDER_OF_BUS}
        self._has_answered = False

    async def now(self, env: Mapping[str, str] | None = None) -> Machine:
        """The machine that a launch with these variables of a profile meets. Raises EngineError."""
        return (await self.look(env)).machine

    async def look(self, env: Mapping[str, str] | None = None, *, traffic: bool = False) -> SeenMachine:
        """The same with what the driver said; `traffic` adds PCIe throughput. Raises EngineError."""
        deciding = {name: value for name, value in (env or {}).items() if name in _DECIDING}
        nvml, host = await asyncio.gather(self._read_nvml(traffic=traffic), asyncio.to_thread(self._host))
        devices = await (self._listing.fresh(deciding) if deciding else self._listing.known())
        seen = self._seen(devices, nvml, host, {**self._environment, **deciding})
        if not deciding and any(not _is_live(device, seen.units) for device in devices):
            seen = self._seen(await self._listing.fresh({}), nvml, host, self._environment)
        return seen

    async def look_without_engine(self) -> SeenMachine:
        """The host, and what the driver shows, where there is no engine to list devices."""
        nvml, host = await asyncio.gather(self._read_nvml(traffic=False), asyncio.to_thread(self._host))
        return self._seen((), nvml, host, self._environment)

    def _seen(
        self, devices: Sequence[Device], nvml: NvmlSnapshot, host: Host, environment: Mapping[str, str]
    ) -> SeenMachine:
        matches = match_devices(devices, nvml, environment)
        ours = self._ours()
        machine = Machine(
            devices=tuple(
                _device_now(device, matches.units.get(device.name), host, ours) for device in matches.devices
            ),
            host=host,
            unlisted=tuple(unit.name or unit.uuid or "a card without a name" for unit in matches.unlisted),
            driver_problem=self._driver_problem(nvml),
        )
        return SeenMachine(machine, matches.units, nvml)

    def _driver_problem(self, nvml: NvmlSnapshot) -> str | None:
        """A machine without an NVIDIA driver has no problem; one whose driver falls silent does."""
        if nvml.problem is None:
            self._has_answered = self._has_answered or bool(nvml.devices)
            return None
        return nvml.problem if self._has_answered else None


def _is_live(device: Device, units: Mapping[str, Unit]) -> bool:
    """Whether nothing better is to be had from the engine: the driver tells its memory, or it must not be asked."""
    if device.is_stale:
        return True
    unit = units.get(device.name)
    return unit is not None and (known(unit.memory) is not None or _has_no_memory(unit))


def _has_no_memory(unit: Unit) -> bool:
    return isinstance(unit.memory, Absent) and unit.memory.code == _NOT_SUPPORTED


def _device_now(device: Device, unit: Unit | None, host: Host, ours: AbstractSet[int]) -> Device:
    """The device with what the driver says of it; the engine's own figures stay where it says nothing."""
    integrated = device.integrated or is_integrated(device.name, device.description)
    total, free = device.total_bytes, device.free_bytes
    holders: tuple[MemoryHolder, ...] = ()
    own_holders: tuple[MemoryHolder, ...] = ()
    if unit is not None:
        told = _holders(known(unit.processes) or ())
        holders = tuple(holder for holder in told if holder.pid not in ours)
        own_holders = tuple(holder for holder in told if holder.pid in ours)
        if (memory := known(unit.memory)) is not None:
            total = total or memory.total_bytes
            free = min(memory.free_bytes, total)
        elif _has_no_memory(unit):
            integrated = True
            total = free = total or host.total_bytes or 0
    if integrated and host.available_bytes is not None:
        # What it takes, it takes from the host.
        free = min(free, host.available_bytes)
    if total:
        free = min(free, total)
    return replace(
        device,
        total_bytes=total,
        free_bytes=free,
        integrated=integrated,
        holders=holders,
        own_holders=own_holders,
    )


def _holders(processes: Sequence[CardProcess]) -> tuple[MemoryHolder, ...]:
    return tuple(MemoryHolder(process.pid, process.used_bytes) for process in processes if process.used_bytes != 0)
