"""Asks the NVIDIA driver through NVML. The only place that knows nvidia-ml-py.

Any call may fail by itself, and NVML as a whole may begin to fail while the service runs (in containers it does after
a reload of systemd on the host): a value is then absent with its reason, and NVML is initialised anew.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pynvml

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
    Reading,
    Utilisation,
    known,
    normal_pci_bus_id,
)

T = TypeVar("T")
R = TypeVar("R")

_PAUSE_SECONDS: Final = 10.0
_CARDS_MAX: Final = 64
_NOT_ASKED: Final = Absent("not asked")
# After these nothing that NVML said before holds any more; a new initialisation may help.
_SICK: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)
_THROTTLE_REASONS: Final = (
    "idle",
    "application-clocks",
    "software-power-cap",
    "hardware-slowdown",
    "sync-boost",
    "software-thermal-slowdown",
    "hardware-thermal-slowdown",
    "power-brake",
    "display-clocks",
)


class Nvml:
    """Reads snapshots in the caller's thread, which a driver in trouble can block for minutes: see `nvml_reader.py`.

    After a new initialisation that did not help there is none for `pause_seconds`.
    """

    def __init__(self, *, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._not_before_seconds = 0.0
        self._is_initialised = False
        self._one_at_a_time = threading.Lock()

    def read(self, *, traffic: bool = False) -> NvmlSnapshot:
        """What the driver says now; `traffic` adds PCIe throughput, 40 ms for each card. Never raises."""
        with self._one_at_a_time:
            snapshot = self._attempt(traffic)
            if self._is_initialised and _is_sick(snapshot) and time.monotonic() >= self._not_before_seconds:
                _ask(pynvml.nvmlShutdown)
                self._is_initialised = False
                snapshot = self._attempt(traffic)
                if _is_sick(snapshot):
                    self._not_before_seconds = time.monotonic() + self._pause_seconds
            return snapshot

    def _attempt(self, traffic: bool) -> NvmlSnapshot:
        if not self._is_initialised:
            begun = _ask(pynvml.nvmlInit)
            if isinstance(begun, Absent):
                return NvmlSnapshot(problem=f"NVML does not start: {begun.reason}")
            self._is_initialised = True
        count = _ask(pynvml.nvmlDeviceGetCount)
        if isinstance(count, Absent):
            return NvmlSnapshot(problem=f"NVML does not list cards: {count.reason}")
        devices = tuple(_device(index, traffic) for index in range(min(count, _CARDS_MAX)))
        return NvmlSnapshot(devices, _ask(pynvml.nvmlSystemGetDriverVersion), _problem(devices))


def _is_sick(snapshot: NvmlSnapshot) -> bool:
    return snapshot.problem is not None or any(map(_sickness, snapshot.devices))


def _sickness(device: NvmlDevice) -> Absent | None:
    for reading in (device.uuid, device.memory):
        if isinstance(reading, Absent) and reading.code in _SICK:
            return reading
    return None


def _problem(devices: Sequence[NvmlDevice]) -> str | None:
    """NVML as a whole fails when no card answers."""
    sicknesses = [_sickness(device) for device in devices]
    if devices and all(sicknesses):
        return f"NVML answers for no card: {', '.join(sorted({sick.reason for sick in sicknesses if sick}))}"
    return None


def _ask(call: Callable[..., T], *arguments: Any) -> Reading[T]:
    """The answer to one call, or why there is none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as failure:
        return Absent(str(failure), failure.value)
    except pynvml.NVMLLibraryMismatchError:
        # The driver is older than the call.
        return Absent("Function Not Found", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    except ValueError as failure:
        return Absent(f"not readable: {failure}")


def _then(reading: Reading[T], change: Callable[[T], R]) -> Reading[R]:
    return reading if isinstance(reading, Absent) else change(reading)


def _device(index: int, traffic: bool) -> NvmlDevice:
    card = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(card, Absent):
        return NvmlDevice(*(card for _ in NvmlDevice.__dataclass_fields__))
    return NvmlDevice(
        uuid=_ask(pynvml.nvmlDeviceGetUUID, card),
        pci_bus_id=_ask(lambda: normal_pci_bus_id(pynvml.nvmlDeviceGetPciInfo(card).busId)),
        name=_ask(pynvml.nvmlDeviceGetName, card),
        # First who holds it, then what is free: what a process takes in between is not thought of as free then.
        processes=_processes(card),
        memory=_memory(card),
        utilisation=_then(
            _ask(pynvml.nvmlDeviceGetUtilizationRates, card),
            lambda found: Utilisation(found.gpu / 100, found.memory / 100),
        ),
        power_watts=_then(_ask(pynvml.nvmlDeviceGetPowerUsage, card), _watts),
        power_limit_watts=_then(_ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, card), _watts),
        temperature_celsius=_ask(pynvml.nvmlDeviceGetTemperature, card, pynvml.NVML_TEMPERATURE_GPU),
        clocks=_all(
            Clocks,
            *(
                _ask(pynvml.nvmlDeviceGetClockInfo, card, kind)
                for kind in (pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
            ),
        ),
        throttle_reasons=_throttle_reasons(card),
        pcie=_all(
            PcieLink,
            _ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, card),
            _ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, card),
            _ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, card),
            _ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, card),
        ),
        traffic=_traffic(card) if traffic else _NOT_ASKED,
        nvlink_peers=_nvlink_peers(card),
        mig_slices=_mig_slices(card),
    )


def _all(make: Callable[..., R], *readings: Reading[Any]) -> Reading[R]:
    """A value of several answers; absent where one of them is."""
    for reading in readings:
        if isinstance(reading, Absent):
            return reading
    return make(*readings)


def _memory(card: Any) -> Reading[CardMemory]:
    found = _ask(pynvml.nvmlDeviceGetMemoryInfo, card)
    return _then(found, lambda memory: CardMemory(memory.total, memory.free, memory.used))


def _processes(card: Any) -> Reading[Sequence[CardProcess]]:
    """Every process once: one that computes and draws is listed by both calls, with all it holds."""
    computing = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, card)
    if isinstance(computing, Absent):
        return computing
    drawing = known(_ask(pynvml.nvmlDeviceGetGraphicsRunningProcesses, card)) or []
    held: dict[int, list[int]] = {}
    for process in (*computing, *drawing):
        told = () if process.usedGpuMemory is None else (process.usedGpuMemory,)
        held.setdefault(process.pid, []).extend(told)
    return tuple(CardProcess(pid, max(figures, default=None)) for pid, figures in sorted(held.items()))


def _throttle_reasons(card: Any) -> Reading[Sequence[str]]:
    bits = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, card)
    if isinstance(bits, Absent) and bits.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        bits = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, card)
    return _then(bits, lambda found: tuple(_reasons(found)))


def _reasons(bits: int) -> Iterator[str]:
    for place in range(bits.bit_length()):
        if bits >> place & 1:
            yield _THROTTLE_REASONS[place] if place < len(_THROTTLE_REASONS) else f"reason-{1 << place:#x}"


def _traffic(card: Any) -> Reading[PcieTraffic]:
    # In kilobytes per second.
    sent, received = (
        _ask(pynvml.nvmlDeviceGetPcieThroughput, card, counter)
        for counter in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    )
    return _all(lambda out, into: PcieTraffic(out * 1000, into * 1000), sent, received)


def _nvlink_peers(card: Any) -> Reading[Sequence[NvlinkPeer]]:
    links: Counter[str] = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        is_active = _ask(pynvml.nvmlDeviceGetNvLinkState, card, link)
        if isinstance(is_active, Absent):
            if link == 0:
                return is_active
            # A card has fewer links than there can be.
            continue
        if is_active:
            peer = _ask(_peer_bus_id, card, link)
            links["unknown" if isinstance(peer, Absent) else peer] += 1
    return tuple(NvlinkPeer(bus_id, count) for bus_id, count in sorted(links.items()))


def _mig_slices(card: Any) -> Reading[Sequence[MigSlice]]:
    mode = _ask(pynvml.nvmlDeviceGetMigMode, card)
    if isinstance(mode, Absent):
        return mode
    if mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    count = _ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, card)
    if isinstance(count, Absent):
        return count
    handles = (_ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index) for index in range(count))
    return tuple(
        MigSlice(
            uuid=_ask(pynvml.nvmlDeviceGetUUID, part),
            name=_ask(pynvml.nvmlDeviceGetName, part),
            processes=_processes(part),
            memory=_memory(part),
        )
        for part in handles
        if not isinstance(part, Absent)
    )


def _peer_bus_id(card: Any, link: int) -> str:
    return normal_pci_bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId)


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000
