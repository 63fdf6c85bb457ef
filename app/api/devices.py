"""GET /devices: the machine as it is now, and who uses it."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from app.errors import EngineError
from app.identifiers import id_text
from app.instances.evidence import DeviceSample
from app.instances.record import InstanceRecord
from app.inventory.device_match import Unit
from app.inventory.devices import Device, Machine
from app.inventory.machine import MachineReader, SeenMachine
from app.inventory.nvml_snapshot import Absent, CardProcess, NvmlDevice, known


class _FromValue(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class DeviceResource(_FromValue):
    """A device as a `Machine` lists it."""

    name: str
    description: str
    uuid: str | None
    pci_bus_id: str | None
    integrated: bool
    total_bytes: int
    free_bytes: int


class HostResource(_FromValue):
    """The host as a `Machine` has it."""

    total_bytes: int | None
    available_bytes: int | None
    physical_cores: int | None


class LiveResource(BaseModel):
    """What the driver says of a device now. A figure that it does not give is null, and `absent` says why."""

    utilisation: dict[str, float] | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: int | None = None
    clocks: dict[str, int] | None = None
    throttle_reasons: list[str] | None = None
    pcie: dict[str, int] | None = None
    traffic: dict[str, int] | None = None
    nvlink_peers: list[dict[str, Any]] | None = None
    absent: dict[str, str] = {}

    @classmethod
    def of(cls, card: NvmlDevice) -> "LiveResource":
        """The figures of a card; those of a slice are its card's."""
        readings = {name: getattr(card, name) for name in cls.model_fields if name != "absent"}
        reasons = {name: reading.reason for name, reading in readings.items() if isinstance(reading, Absent)}
        given = {name: _plain(reading) for name, reading in readings.items() if name not in reasons}
        return cls(**given, absent=reasons)


class HolderResource(BaseModel):
    """A process that holds memory of a device; `instance_id` where it is an engine of ours."""

    pid: int
    used_bytes: int | None
    instance_id: str | None = None
    profile_id: str | None = None


class UsageResource(BaseModel):
    """What of a device is promised to launches that are not done, and who holds memory of it.

    `mismatch` says why the driver's figures are not attached; `is_stale`, that the figures are from before our engines
    took theirs.
    """

    reserved_bytes: int = 0
    holders: list[HolderResource] = []
    mismatch: str | None = None
    is_stale: bool = False


class MachineResource(BaseModel):
    """`devices` and `host` are a `Machine`, which a check takes as it is; the rest is by device name."""

    devices: list[DeviceResource]
    host: HostResource
    live: dict[str, LiveResource] = {}
    usage: dict[str, UsageResource] = {}
    driver_version: str | None = None
    numa_nodes: int | None = None
    unlisted: list[str] = []
    problems: list[str] = []


class DeviceSampleResource(BaseModel):
    """One look at a device; a figure that the driver does not give is null. `busy_rate` is from 0 to 1."""

    at: datetime
    busy_rate: float | None
    free_bytes: int | None
    total_bytes: int | None
    power_watts: float | None
    temperature_celsius: int | None
    throttle_reasons: list[str]


class MachineWithHistory(MachineResource):
    """The same with the looks of the last minutes by device name, oldest first; they are taken while instances live."""

    history: dict[str, list[DeviceSampleResource]]


def router(
    reader: MachineReader,
    instances: Callable[[], Sequence[InstanceRecord]],
    reserved: Callable[[], Mapping[str, int]],
    samples: Callable[[], Mapping[str, Sequence[DeviceSample]]] = dict,
) -> APIRouter:
    """The route over the reader, the lives that are known, the bytes that are reserved and the looks by device name."""
    routes = APIRouter(tags=["devices"])

    @routes.get("/devices")
    async def devices(
        history: bool = Query(False, description="add the looks of the last minutes at each device"),
    ) -> MachineWithHistory | MachineResource:
        """Devices and host as seen now, live figures of the driver, and which instance uses what."""
        try:
            seen = await reader.look(traffic=True)
        except EngineError as problem:
            # Without an engine the host is all there is to place anything on; what the driver shows is said.
            seen = await reader.look_without_engine()
            resource = _resource(seen, instances(), {}, [problem.message])
        else:
            resource = _resource(seen, instances(), reserved(), [])
        return MachineWithHistory(**dict(resource), history=_history(samples())) if history else resource

    return routes


def _history(samples: Mapping[str, Sequence[DeviceSample]]) -> dict[str, list[DeviceSampleResource]]:
    """The looks with times of the wall clock, counted back from now."""
    now, now_seconds = datetime.now(UTC), time.monotonic()
    return {
        name: [
            DeviceSampleResource(
                at=now - timedelta(seconds=now_seconds - sample.at_seconds),
                busy_rate=sample.busy_rate,
                free_bytes=sample.free_bytes,
                total_bytes=sample.total_bytes,
                power_watts=sample.power_watts,
                temperature_celsius=sample.temperature_celsius,
                throttle_reasons=list(sample.throttle_reasons),
            )
            for sample in looks
        ]
        for name, looks in samples.items()
    }


def _resource(
    seen: SeenMachine, records: Sequence[InstanceRecord], reserved: Mapping[str, int], problems: Sequence[str]
) -> MachineResource:
    machine = seen.machine
    by_pid = {record.pid: record for record in records if record.pid is not None}
    return MachineResource(
        **machine_document(machine),
        live={name: LiveResource.of(unit.card) for name, unit in seen.units.items()},
        usage={
            device.name: _usage(device, seen.units.get(device.name), by_pid, reserved.get(device.name, 0))
            for device in machine.devices
        },
        driver_version=known(seen.nvml.driver_version),
        numa_nodes=machine.host.numa_nodes,
        unlisted=list(machine.unlisted),
        problems=[*problems, *([machine.driver_problem] if machine.driver_problem else [])],
    )


def machine_document(machine: Machine) -> dict[str, Any]:
    """A machine in the shape in which checks take one."""
    return {
        "devices": [DeviceResource.model_validate(device) for device in machine.devices],
        "host": HostResource.model_validate(machine.host),
    }


def _usage(
    device: Device, unit: Unit | None, by_pid: Mapping[int, InstanceRecord], reserved_bytes: int
) -> UsageResource:
    processes = (known(unit.processes) if unit else None) or ()
    return UsageResource(
        reserved_bytes=reserved_bytes,
        holders=[_holder(process, by_pid.get(process.pid)) for process in processes],
        mismatch=device.mismatch,
        is_stale=device.is_stale,
    )


def _holder(process: CardProcess, record: InstanceRecord | None) -> HolderResource:
    return HolderResource(
        pid=process.pid,
        used_bytes=process.used_bytes,
        instance_id=id_text(record.id) if record else None,
        profile_id=record.profile_id if record else None,
    )


def _plain(value: Any) -> Any:
    """Values of the snapshot as plain data."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
