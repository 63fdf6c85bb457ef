"""Units -> devices, as llama.cpp assigns them. A unit is a layer, or the output as the last one."""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from app.profiles.profile import GpuLayers

HOST = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every unit lives: an index into `devices`, or None for the host.

    `devices` are in the order of the launch. With `is_shared` (split mode `tensor`) each of them holds its `shares` of
    every unit on a device, and all units on devices then name index 0; with `splits_rows` the same is true of matrices.
    """

    devices: tuple[str, ...]
    units: tuple[int | None, ...]
    shares: tuple[float, ...]
    is_shared: bool = False
    splits_rows: bool = False

    @property
    def output(self) -> int | None:
        """Where the output unit is."""
        return self.units[-1]

    @property
    def used(self) -> tuple[int, ...]:
        """The devices that have a unit, in order."""
        return tuple(sorted({device for device in self.units if device is not None}))

    def units_on(self, device: int | None) -> list[int]:
        """The units there, in order."""
        return [unit for unit, place in enumerate(self.units) if place == device]


def gpu_layer_count(wanted: GpuLayers, unit_count: int) -> int:
    """How many units go to devices; `all` and `auto` are the same once a launch is decided."""
    return min(wanted, unit_count) if isinstance(wanted, int) else unit_count


def assign(
    unit_count: int,
    devices: Sequence[str],
    gpu_layers: GpuLayers,
    split_mode: str = "layer",
    tensor_split: Sequence[float] | None = None,
    main_gpu: int = 0,
    free_bytes: Sequence[int] = (),
) -> Layout:
    """Divide `unit_count` units over `devices`; the last `gpu_layers` of them leave the host.

    Shares are proportions in the order of the devices; what is missing counts as 0. Without any share the engine
    divides by the memory that is free at that moment (`free_bytes`).
    """
    names = tuple(devices)
    if split_mode == "none" and names:
        names = names[min(main_gpu, len(names) - 1) :][:1]
        tensor_split = None
    if not names:
        return Layout((), (HOST,) * unit_count, ())
    shares = _shares(len(names), tensor_split, free_bytes, is_even=split_mode == "tensor")
    offloaded = gpu_layer_count(gpu_layers, unit_count)
    first = unit_count - offloaded
    if split_mode == "tensor":
        units = (HOST,) * first + (0,) * offloaded
        return Layout(names, units, shares, is_shared=True)
    ends = _ends(shares)
    last = len(names) - 1
    units = (HOST,) * first + tuple(
        min(bisect_right(ends, _single(_single(unit) / _single(offloaded))), last) for unit in range(offloaded)
    )
    return Layout(names, units, shares, splits_rows=split_mode == "row")


def _shares(
    count: int, wanted: Sequence[float] | None, free_bytes: Sequence[int], *, is_even: bool
) -> tuple[float, ...]:
    given = [max(0.0, share) for share in (wanted or ())][:count]
    given += [0.0] * (count - len(given))
    if not any(given):
        free = [float(bytes_) for bytes_ in free_bytes][:count]
        given = free if len(free) == count and any(free) and not is_even else [1.0] * count
    total = sum(given)
    return tuple(share / total for share in given) if is_even else tuple(given)


def _ends(shares: Sequence[float]) -> list[float]:
    """Where each device's part ends, from 0 to 1, in the engine's own single precision."""
    sums, total = [], 0.0
    for share in shares:
        total = _single(total + _single(share))
        sums.append(total)
    return [_single(part / total) for part in sums]


def _single(value: float) -> float:
    """Rounded to 32 bits: at the borders double precision would choose another device."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
