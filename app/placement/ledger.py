"""Ledger: adds up bytes by place and purpose while a plan is made."""

from collections.abc import Mapping, Sequence

from app.inventory.devices import Device, Machine
from app.placement.budgets import HOST_NAME, TERMS, DeviceBudget, HostBudget, LayerSpan, PlacementPlan, terms


class Ledger:
    """One plan in the making. Devices are those of the machine; one it does not list is added with unknown memory."""

    def __init__(self, machine: Machine, reservations: Mapping[str, int]) -> None:
        self._machine = machine
        self._reservations = reservations
        self._devices = {device.name: device for device in machine.devices}
        self._device_terms = {name: dict.fromkeys(TERMS, 0) for name in self._devices}
        self._host_terms = dict.fromkeys(TERMS, 0)
        self._mapped_bytes = 0

    def add(self, term: str, device: str | None, n_bytes: int) -> None:
        """Add to a device, or with None to the host."""
        if device is None:
            self._host_terms[term] += n_bytes
            return
        if device not in self._devices:
            self._devices[device] = Device(device)
            self._device_terms[device] = dict.fromkeys(TERMS, 0)
        self._device_terms[device][term] += n_bytes

    def add_all(self, term: str, devices: Sequence[str], device_bytes: Sequence[int], host_bytes: int) -> None:
        """Add what was placed over the devices of a layout, and on the host."""
        for device, n_bytes in zip(devices, device_bytes, strict=True):
            self.add(term, device, n_bytes)
        self.add(term, None, host_bytes)

    def map_from_file(self, n_bytes: int) -> None:
        """So many of the host's weights are only mapped."""
        self._mapped_bytes += n_bytes

    def used(self) -> list[str]:
        """The devices that have got anything."""
        return [name for name, used in self._device_terms.items() if any(used.values())]

    def free_bytes(self, name: str) -> int:
        """What a device has left for a launch, 0 where it is not known."""
        device = self._devices.get(name)
        return max(0, device.free_bytes - self._reserved(name)) if device else 0

    def plan(
        self,
        margin_bytes: int,
        layers: Sequence[LayerSpan] = (),
        output_device: str = HOST_NAME,
        partial: Sequence[str] = (),
        impossible: Sequence[str] = (),
    ) -> PlacementPlan:
        """The finished plan."""
        shared = [name for name, device in self._devices.items() if device.integrated]
        on_shared = sum(sum(self._device_terms[name].values()) for name in shared)
        host = HostBudget(
            available_bytes=self._machine.host.available_bytes,
            reserved_bytes=self._reserved(HOST_NAME) + on_shared,
            terms=terms(**self._host_terms),
            mapped_bytes=self._mapped_bytes,
        )
        budgets = [
            self._device_budget(device, margin_bytes, host.resident_bytes, on_shared)
            for device in self._devices.values()
        ]
        unknown = [f"the memory of {budget.name} is not known" for budget in budgets if not budget.is_known]
        return PlacementPlan(budgets, host, tuple(layers), output_device, (*partial, *unknown), impossible)

    def _device_budget(self, device: Device, margin_bytes: int, host_bytes: int, on_shared: int) -> DeviceBudget:
        """A device that shares the host's memory has one budget with it, and with others of its kind."""
        used = terms(**self._device_terms[device.name])
        free, reserved = device.free_bytes, self._reserved(device.name)
        if device.integrated:
            reserved += host_bytes + on_shared - sum(used.values())
            if self._machine.host.available_bytes is not None:
                free = min(free, self._machine.host.available_bytes) or self._machine.host.available_bytes
        return DeviceBudget(
            name=device.name,
            total_bytes=device.total_bytes,
            free_bytes=free,
            reserved_bytes=reserved,
            margin_bytes=margin_bytes,
            terms=used,
            is_known=device.total_bytes > 0 or free > 0,
            shares_host=device.integrated,
        )

    def _reserved(self, name: str) -> int:
        return max(0, self._reservations.get(name, 0))
