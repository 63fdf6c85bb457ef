"""PlacementPlan: the bytes of every device and of the host, by what they are for. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

TERMS: Final = (
    "weights",
    "kv_cache",
    "recurrent_state",
    "compute",
    "draft_weights",
    "draft_kv_cache",
    "draft_compute",
    "projector",
    "host_caches",
    "overhead",
)
HOST_NAME: Final = "host"


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """One device. `terms` has every name of `TERMS` and adds up to `required_bytes`.

    `reserved_bytes` is promised to others and, on a device that shares the host's memory, what the host part of this
    launch keeps: `shares_host`. `is_known` is false where the engine does not tell the device's memory: its headroom
    says nothing.
    """

    name: str
    total_bytes: int
    free_bytes: int
    reserved_bytes: int
    margin_bytes: int
    terms: Mapping[str, int]
    is_known: bool = True
    shares_host: bool = False

    @property
    def required_bytes(self) -> int:
        """All of it together."""
        return sum(self.terms.values())

    @property
    def headroom_bytes(self) -> int:
        """What is left once everything lies there; negative where it does not fit."""
        return self.free_bytes - self.reserved_bytes - self.margin_bytes - self.required_bytes

    @property
    def fits(self) -> bool:
        """Whether it does, as far as that is known; a device that gets nothing always does."""
        return not self.is_known or not self.required_bytes or self.headroom_bytes >= 0


@dataclass(frozen=True, slots=True)
class HostBudget:
    """The host's memory. `mapped_bytes` of its weights are only mapped from files, and can be read again at any time.

    `available_bytes` is None where it cannot be known.
    """

    available_bytes: int | None
    reserved_bytes: int
    terms: Mapping[str, int]
    mapped_bytes: int

    @property
    def required_bytes(self) -> int:
        """All of it together, mapped weights included."""
        return sum(self.terms.values())

    @property
    def resident_bytes(self) -> int:
        """What must stay in memory."""
        return self.required_bytes - self.mapped_bytes

    @property
    def headroom_bytes(self) -> int | None:
        """What is left with every mapped weight in memory; negative: some will be read again and again."""
        return self._left(self.required_bytes)

    @property
    def resident_headroom_bytes(self) -> int | None:
        """What is left for mapped weights; negative: it does not fit at all."""
        return self._left(self.resident_bytes)

    def _left(self, needed_bytes: int) -> int | None:
        return None if self.available_bytes is None else self.available_bytes - self.reserved_bytes - needed_bytes


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """Neighbouring layers of the target in one place; `device` is `host` there. `last` belongs to it.

    `experts_on_host` counts the layers among them whose experts are on the host though the layer is not.
    """

    device: str
    first: int
    last: int
    experts_on_host: int


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Where every byte of a launch will be.

    `partial` names what is not known; the figures are then bounds above. `impossible` says why the engine would not
    load it at all, whatever the memory.
    """

    devices: Sequence[DeviceBudget]
    host: HostBudget
    layers: Sequence[LayerSpan]
    output_device: str
    partial: Sequence[str]
    impossible: Sequence[str] = ()

    @property
    def fits(self) -> bool:
        """Whether every device has room, and the host for what must stay resident."""
        left = self.host.resident_headroom_bytes
        has_room = all(device.fits for device in self.devices) and (left is None or left >= 0)
        return has_room and not self.impossible

    def device(self, name: str) -> DeviceBudget | None:
        """The budget of one device."""
        return next((device for device in self.devices if device.name == name), None)

    def with_terms(
        self, devices: Mapping[str, Mapping[str, int]], host: Mapping[str, int], mapped_bytes: int
    ) -> "PlacementPlan":
        """The same layout with other bytes by term; a device that is not named keeps its own.

        What the host and the devices that share its memory take more, the others of them find promised.
        """
        resized = [replace(old, terms=terms(**devices.get(old.name, old.terms))) for old in self.devices]
        grown_bytes = {
            new.name: new.required_bytes - old.required_bytes
            for new, old in zip(resized, self.devices, strict=True)
            if new.shares_host
        }
        on_shared = sum(grown_bytes.values())
        settled = replace(
            self.host,
            terms=terms(**host),
            mapped_bytes=mapped_bytes,
            reserved_bytes=self.host.reserved_bytes + on_shared,
        )
        beside = settled.resident_bytes - self.host.resident_bytes + on_shared
        budgets = [
            replace(new, reserved_bytes=new.reserved_bytes + beside - grown_bytes[new.name]) if new.shares_host else new
            for new in resized
        ]
        return replace(self, devices=budgets, host=settled)


def terms(**known: int) -> Mapping[str, int]:
    """Every term, 0 where it is not given."""
    return MappingProxyType({name: known.get(name, 0) for name in TERMS})
