"""Rules on how the target is divided over devices."""

from app import findings
from app.findings import Finding, Fix
from app.placement.amounts import counted
from app.placement.case import LaunchCase
from app.placement.places import places_of
from app.placement.resolve import resolve
from app.placement.rules.devices import DEVICES_MOST

_GIB = 1 << 30


def split_shape(case: LaunchCase) -> Finding | None:
    """Shares that are not one positive number for each device: the engine ignores some, divides otherwise, or exits."""
    placement = case.profile.placement
    shares, devices = placement.tensor_split, resolve(case).devices
    if shares is None or not devices:
        return None
    # Where one device computes, shares are only read; a list that is too long ends the engine all the same.
    if placement.split_mode == "none" and len(shares) <= DEVICES_MOST:
        return None
    given = [share for share in shares if share > 0]
    kept = [name for name, share in zip(devices, shares, strict=False) if share > 0]
    if any(share < 0 for share in shares):
        what, fixes = "a share is negative", [_without_split()]
    elif not given:
        what = "every share is 0, which the engine takes for no split at all"
        fixes = [_without_split()]
    elif len(shares) > DEVICES_MOST:
        what = f"there are {len(shares)} shares, and with more than {DEVICES_MOST} the engine exits"
        fixes = (placement.split_mode != "none" and _first_shares(shares, len(devices))) or [_without_split()]
    elif len(shares) > len(devices):
        there = f"there are {len(shares)} shares for {counted(len(devices), 'device')}"
        what = f"{there}, and the engine ignores those past the last"
        fixes = _first_shares(shares, len(devices)) or [_without_split()]
    elif len(shares) < len(devices) or 1 < len(given) < len(devices):
        idle = [name for name in devices if name not in kept]
        what = f"{', '.join(idle)} has no share, and would get no layer"
        fixes = [_only(kept, given)]
    else:
        return None
    return findings.error(
        "split-shape",
        f"The tensor split does not fit its devices: {what}.",
        expected=f"one positive share for each of {', '.join(devices)}",
        observed=", ".join(f"{share:g}" for share in shares) or "no share",
        evidence="placement.tensor_split, placement.devices",
        fixes=fixes,
    )


def _without_split() -> Fix:
    return Fix("Let the engine divide", {"placement": {"tensor_split": None}})


def _first_shares(shares: tuple[float, ...], count: int) -> list[Fix]:
    first = list(shares[:count])
    if not any(share > 0 for share in first):
        return []
    return [Fix("Keep the shares of these devices", {"placement": {"tensor_split": first}})]


def _only(kept: list[str], shares: list[float]) -> Fix:
    split = shares if len(kept) > 1 else None
    return Fix(f"Use {', '.join(kept)} only", {"placement": {"devices": kept, "tensor_split": split}})


def split_implicit(case: LaunchCase) -> Finding | None:
    """Without shares layers are divided by what memory is free at that moment; mode `tensor` divides evenly."""
    placement = case.profile.placement
    if placement.tensor_split is not None or placement.split_mode not in ("layer", "row"):
        return None
    devices = places_of(case).devices
    if len(devices) < 2:
        return None
    return findings.warning(
        "split-implicit",
        f"The profile does not say how {', '.join(devices)} share the layers: the engine divides them by the memory "
        "that is free at that moment, so two launches can differ.",
        expected="placement.tensor_split",
        observed=f"{len(devices)} devices and no shares",
        evidence="the profile",
        fixes=_by_free_memory(case, devices),
    )


def _by_free_memory(case: LaunchCase, devices: tuple[str, ...]) -> list[Fix]:
    """What the engine would do now, written down. A split for what the launch needs takes a memory plan."""
    free_bytes = {device.name: device.free_bytes for device in case.machine.devices}
    shares = [round(free_bytes.get(name, 0) / _GIB, 1) for name in devices]
    if not all(share > 0 for share in shares):
        return []
    text = f"Divide by what is free now: {', '.join(f'{share:g}' for share in shares)}"
    return [Fix(text, {"placement": {"tensor_split": shares}})]


def split_to_one(case: LaunchCase) -> Finding | None:
    """All shares on one device still launch on all of them, with buffers and copies on each."""
    placement = case.profile.placement
    shares, devices = placement.tensor_split, resolve(case).devices
    if shares is None or placement.split_mode == "none" or len(shares) != len(devices) or len(devices) < 2:
        return None
    with_share = [index for index, share in enumerate(shares) if share > 0]
    if len(with_share) != 1 or any(share < 0 for share in shares):
        return None
    index = with_share[0]
    patch = {"placement": {"split_mode": "none", "main_gpu": index, "tensor_split": None}}
    return findings.warning(
        "split-to-one",
        f"The shares give everything to {devices[index]}, and the other devices still take part with buffers of "
        "their own: that is not the same as one device.",
        expected=f"split_mode none with main_gpu {index}",
        observed=", ".join(f"{share:g}" for share in shares),
        evidence="placement.tensor_split",
        fixes=[Fix(f"Run on {devices[index]} alone", patch)],
    )


def main_gpu_ignored(case: LaunchCase) -> Finding | None:
    """Only mode `none` runs on the main device; in mode `row` it is where small tensors and results are."""
    placement = case.profile.placement
    if placement.main_gpu == 0 or placement.split_mode in ("none", "row"):
        return None
    fixes = [Fix("Leave it out", {"placement": {"main_gpu": 0}})]
    devices = resolve(case).devices
    if placement.main_gpu < len(devices):
        alone = {"placement": {"split_mode": "none", "tensor_split": None}}
        fixes.append(Fix(f"Run on {devices[placement.main_gpu]} alone", alone))
    return findings.info(
        "main-gpu-ignored",
        f"main_gpu {placement.main_gpu} has no effect with split mode {placement.split_mode}.",
        expected="split_mode none or row, or main_gpu 0",
        observed=f"main_gpu {placement.main_gpu}, split_mode {placement.split_mode}",
        evidence="llama.cpp build 11434",
        fixes=fixes,
    )


def main_gpu_unknown(case: LaunchCase) -> Finding | None:
    """The main device counts within the devices of the launch; past the last the engine exits."""
    placement = case.profile.placement
    devices = resolve(case).devices
    if placement.split_mode != "none" or not devices or placement.main_gpu < len(devices):
        return None
    return findings.error(
        "main-gpu-unknown",
        f"main_gpu is {placement.main_gpu}, and the launch has {counted(len(devices), 'device')}, counted from 0: the "
        "engine would exit with `invalid value for main_gpu`.",
        expected=f"0 to {len(devices) - 1}",
        observed=str(placement.main_gpu),
        evidence="placement.main_gpu, placement.devices",
        fixes=[Fix(f"Run on {devices[0]}", {"placement": {"main_gpu": 0}})],
    )


RULES = (split_shape, split_implicit, split_to_one, main_gpu_ignored, main_gpu_unknown)
