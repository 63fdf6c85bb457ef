"""Rules on the machine: what of it a launch will meet other than the profile supposes."""

from collections.abc import Iterator, Sequence

from app import findings
from app.findings import Finding, Fix
from app.inventory.device_match import ORDER_OF_BUS, ORDER_VARIABLE
from app.inventory.devices import Device, MemoryHolder
from app.inventory.engine import EngineKind
from app.placement.case import LaunchCase
from app.placement.resolve import NO_DEVICE

_HOLDERS_NAMED = 8


def no_device(case: LaunchCase) -> Finding | None:
    """Layers to offload, and nothing to offload them to. Named devices that are not there are another rule's matter."""
    placement = case.profile.placement
    if case.machine.devices or placement.devices is not None or placement.gpu_layers == 0:
        return None
    unlisted = case.machine.unlisted
    drives_none = case.engine.device_backends == frozenset()
    tell = findings.info if drives_none and not unlisted else findings.warning
    if unlisted:
        why = f", though the driver shows {', '.join(unlisted)}"
        hint = ": this build has no backend for it" if drives_none else ": see what the engine's --list-devices says"
    else:
        why, hint = "", ": this build only computes on the CPU" if drives_none else ""
    if case.engine.kind is EngineKind.EMBEDDED:
        hint = (
            ": the embedded engine only computes on the CPU. For a device name a llama-server that was built for it in "
            "PACELINE_ENGINE, or put it on PATH, and start the service again"
        )
    return tell(
        "no-device",
        f"The engine lists no device{why}, so every layer runs on the CPU{hint}.",
        expected="a device for the layers that are to be offloaded",
        observed="no device",
        evidence="the engine's --list-devices",
        fixes=[Fix("Say that the CPU computes", {"placement": {"gpu_layers": 0}})],
    )


def device_order(case: LaunchCase) -> Finding | None:
    """Names that may mean other cards than the driver's figures do."""
    order = case.profile.env.get(ORDER_VARIABLE, ORDER_OF_BUS)
    by_cuda = [device.name for device in case.machine.devices if device.name.startswith("CUDA")]
    if order != ORDER_OF_BUS and len(by_cuda) > 1:
        return findings.warning(
            "device-order",
            f"The profile sets {ORDER_VARIABLE}={order}, so CUDA may number its devices in another order than the "
            f"driver: {', '.join(by_cuda)} may be other cards than those whose memory was read.",
            expected=f"{ORDER_VARIABLE}={ORDER_OF_BUS}, as launches set it by themselves",
            observed=order,
            evidence="the profile's env",
            fixes=[Fix("Leave the order to Paceline", {"env": {ORDER_VARIABLE: None}})],
        )
    unmatched = [device for device in _used(case) if device.mismatch]
    if not unmatched:
        return None
    return findings.warning(
        "device-order",
        "It is not known which card of the driver a device of the engine is, so the engine's own figures count: "
        + "; ".join(
            f"{device.name} ({device.description or 'no description'}): {device.mismatch}" for device in unmatched
        ),
        expected="every CUDA device of the engine is one card of the driver, by UUID, PCI id or order",
        observed=f"no match for {', '.join(device.name for device in unmatched)}",
        evidence="the engine's --list-devices and NVML",
    )


def device_busy(case: LaunchCase) -> Finding | None:
    """Memory that other programs hold may be gone, or back, by the time of the launch."""
    busy = [device for device in _used(case) if device.holders]
    if not busy:
        return None
    told = "; ".join(f"{device.name}: {_holders_text(device.holders)}" for device in busy)
    return findings.warning(
        "device-busy",
        f"Processes that are not Paceline's hold memory of a device: {told}. End them to have it.",
        expected="no process but Paceline's engines",
        observed=told,
        evidence="NVML",
    )


def unified_memory(case: LaunchCase) -> Finding | None:
    """A device without memory of its own: moving layers to the host frees nothing."""
    names = [device.name for device in _used(case) if device.integrated]
    if not names:
        return None
    return findings.info(
        "unified-memory",
        f"{', '.join(names)} and the host share one memory: what the device takes is not there for the host, "
        "and to move layers or experts to the host frees nothing.",
        expected="a device with memory of its own",
        observed=f"integrated: {', '.join(names)}",
        evidence="NVML, or the device's name",
    )


def device_stale(case: LaunchCase) -> Finding | None:
    """An RPC server serves one client at a time: while an engine of ours lives its memory cannot be read."""
    names = ", ".join(device.name for device in _used(case) if device.is_stale)
    if not names:
        return None
    return findings.warning(
        "device-stale",
        f"{names} cannot be asked while an engine of ours runs: the figures are from before it started. What engines "
        "of other profiles take there is taken off as their plans say; what programs that are not Paceline's have "
        "taken since is not seen. An RPC server that another engine uses lets this launch wait until that one ends.",
        expected="memory as it is now",
        observed=f"memory as it was: {names}",
        evidence="the engine's --list-devices, when nothing ran",
    )


def driver_silent(case: LaunchCase) -> Finding | None:
    """The driver fell silent while the service runs: a launch may end on the CPU, or not begin at all."""
    problem = case.machine.driver_problem
    if problem is None:
        return None
    return findings.error(
        "driver-silent",
        f"The NVIDIA driver does not answer any more ({problem}). In a container it comes back with a new container; "
        "elsewhere see the kernel's log for the card.",
        expected="a driver that answers, as it did before",
        observed=problem,
        evidence="NVML",
        overridable=True,
    )


def _used(case: LaunchCase) -> Iterator[Device]:
    """The devices that a launch may use: those named, else all."""
    placement, draft = case.profile.placement, case.profile.speculation.draft
    if placement.devices is None:
        yield from case.machine.devices
        return
    named = {*placement.devices, draft.device if draft and draft.device else NO_DEVICE}
    yield from (device for device in case.machine.devices if device.name in named)


def _holders_text(holders: Sequence[MemoryHolder]) -> str:
    largest = sorted(holders, key=lambda holder: -(holder.used_bytes or 0))
    named = [
        f"pid {holder.pid}" + ("" if holder.used_bytes is None else f" with {holder.used_bytes / (1 << 20):.0f} MiB")
        for holder in largest[:_HOLDERS_NAMED]
    ]
    more = len(largest) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


RULES = (no_device, device_order, device_busy, device_stale, unified_memory, driver_silent)
