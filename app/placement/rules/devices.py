"""Rules on devices."""

import re

from app import findings
from app.findings import Finding, Fix
from app.placement.case import LaunchCase
from app.placement.resolve import NO_DEVICE, resolve

# Names that a backend makes for its own: pinned host memory, split rows, a server behind an address.
_BUFFERS_OF_BACKENDS = re.compile(r"_Host$|_Split$|^RPC\d+\[.+\]$|REPACK$")

# The scheduler holds 16 backends and the CPU is one of them; a list of 16 shares is refused as well.
DEVICES_MOST = 15


def device_unknown(case: LaunchCase) -> Finding | None:
    """A device that the engine does not list: it exits with `invalid device`."""
    named = list(case.profile.placement.devices or ())
    draft = case.profile.speculation.draft
    if draft is not None and draft.device is not None:
        named.append(draft.device)
    listed = case.machine.device_names
    unknown = [name for name in dict.fromkeys(named) if name not in (*listed, NO_DEVICE)]
    if not unknown:
        return None
    return findings.error(
        "device-unknown",
        f"The engine has no device {', '.join(unknown)}; it lists {', '.join(listed) or 'none'}.",
        expected=f"one of {', '.join((*listed, NO_DEVICE))}",
        observed=", ".join(unknown),
        evidence="the engine's --list-devices",
        fixes=_device_fixes(case, unknown),
    )


def _device_fixes(case: LaunchCase, unknown: list[str]) -> list[Fix]:
    """A bare index means the device with that index; with no device at all the host is what is left."""
    listed = case.machine.device_names
    meant = {name: listed[int(name)] for name in unknown if name.isdecimal() and int(name) < len(listed)}
    devices = case.profile.placement.devices
    draft = case.profile.speculation.draft
    fixes = []
    if devices is not None and any(name in meant for name in devices):
        renamed = [meant.get(name, name) for name in devices]
        fixes.append(Fix("Name devices as the engine does", {"placement": {"devices": renamed}}))
    elif devices is not None and any(name in unknown for name in devices):
        fixes.append(Fix("Use every device that the engine has", {"placement": {"devices": None}}))
    if draft is not None and draft.device in unknown:
        device = meant.get(draft.device)
        text = f"Put the draft on {device}" if device else "Put the draft where the target's output layer is"
        fixes.append(Fix(text, {"speculation": {"draft": {"device": device}}}))
    return fixes


def device_repeated(case: LaunchCase) -> Finding | None:
    """A device named twice: the engine divides the layers over two of it, and figures by name would hide one."""
    devices = case.profile.placement.devices or ()
    once = list(dict.fromkeys(devices))
    if len(once) == len(devices) and not (NO_DEVICE in once and len(once) > 1):
        return None
    kept = [name for name in once if name != NO_DEVICE] or once
    return findings.error(
        "device-repeated",
        f"placement.devices names {', '.join(devices)}: each device once, and none only by itself.",
        expected="each device once",
        observed=", ".join(devices),
        evidence="the profile",
        fixes=[Fix(f"Use {', '.join(kept)}", {"placement": {"devices": kept, "tensor_split": None}})],
    )


def devices_too_many(case: LaunchCase) -> Finding | None:
    """The engine is compiled for so many, and aborts while loading with one more."""
    devices, mode = resolve(case).devices, case.profile.placement.split_mode
    if mode == "none" or len(devices) <= DEVICES_MOST:
        return None
    return findings.error(
        "devices-too-many",
        f"The launch has {len(devices)} devices, and the engine takes at most {DEVICES_MOST}: it would abort while "
        "loading.",
        expected=f"at most {DEVICES_MOST} devices",
        observed=str(len(devices)),
        evidence="llama.cpp build 11434, on remote CPU devices",
        fixes=[
            Fix(
                f"The first {DEVICES_MOST}",
                {"placement": {"devices": list(devices[:DEVICES_MOST]), "tensor_split": None}},
            )
        ],
    )


def buffer_unknown(case: LaunchCase) -> Finding | None:
    """A buffer that an override names and this launch does not have: the engine exits, or aborts on its first use."""
    devices = resolve(case).devices
    known = ("CPU", *devices)
    wrong = [
        entry
        for entry in case.profile.placement.override_tensor
        if (buffer := entry.partition("=")[2]) and buffer not in known and not _BUFFERS_OF_BACKENDS.search(buffer)
    ]
    if not wrong:
        return None
    kept = [entry for entry in case.profile.placement.override_tensor if entry not in wrong]
    return findings.error(
        "buffer-unknown",
        f"placement.override_tensor sends tensors to {', '.join(entry.partition('=')[2] for entry in wrong)}, "
        "which is no buffer of this launch.",
        expected=", ".join(known),
        observed=", ".join(wrong),
        evidence="the devices of this launch",
        overridable=True,
        fixes=[Fix("Leave them out", {"placement": {"override_tensor": kept}})],
    )


RULES = (device_unknown, device_repeated, devices_too_many, buffer_unknown)
