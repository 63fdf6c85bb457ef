"""The machine as it will be when an earlier life of the same profile has given its memory back. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from app.inventory.devices import Machine
from app.placement.budgets import HOST_NAME


def with_returning(machine: Machine, returning: Mapping[str, int]) -> Machine:
    """The machine with so many bytes more free, by device, and never more than a device has."""
    if not returning:
        return machine
    devices = tuple(
        replace(device, free_bytes=min(device.total_bytes, device.free_bytes + returning.get(device.name, 0)))
        for device in machine.devices
    )
    host = machine.host
    if host.available_bytes is not None:
        host = replace(host, available_bytes=host.available_bytes + returning.get(HOST_NAME, 0))
    return replace(machine, devices=devices, host=host)
