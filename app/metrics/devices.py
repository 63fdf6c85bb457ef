"""Devices and the host as series, from looks that were taken before: a scrape never waits for a driver."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.instances.evidence import DeviceSample
from app.instances.record import InstanceRecord
from app.inventory.devices import Device, Host

# A driver that is silent is asked each half minute: what is older than two of those is not of now.
_FRESH_SECONDS: Final = 60.0


class DevicesCollector(Collector):
    """`devices` are the engine's as it listed them, `looks` the newest look at each that the driver tells of.

    Looks are taken while instances live, so a device at rest shows its size, and what we promise and hold: nothing.
    `reserved` has, by device, what is promised to launches that are not done; `records` the newest life of each
    profile; `host` reads two files of the kernel. Times are of `clock`.
    """

    def __init__(
        self,
        devices: Callable[[], Sequence[Device]],
        looks: Callable[[], Mapping[str, DeviceSample]],
        reserved: Callable[[], Mapping[str, int]],
        records: Callable[[], Sequence[InstanceRecord]],
        host: Callable[[], Host],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._devices = devices
        self._looks = looks
        self._reserved = reserved
        self._records = records
        self._host = host
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        devices = {device.name: device for device in self._devices()}
        now_seconds = self._clock()
        looks = {name: look for name, look in self._looks().items() if now_seconds - look.at_seconds <= _FRESH_SECONDS}
        yield from _memory(devices, looks, self._reserved(), held_bytes(self._records()))
        yield from _activity(looks)
        yield from _host(self._host())


def held_bytes(records: Iterable[InstanceRecord]) -> Mapping[str, int]:
    """What living instances take of each device and of the host: each term as measured, as planned where it is not."""
    held: Counter[str] = Counter()
    for record in records:
        if record.state.is_terminal:
            continue
        predicted, measured = record.memory["predicted"], record.memory["measured"]
        for name in {*predicted, *measured}:
            held[name] += sum({**predicted.get(name, {}), **measured.get(name, {})}.values())
    return held


def _memory(
    devices: Mapping[str, Device],
    looks: Mapping[str, DeviceSample],
    reserved: Mapping[str, int],
    held: Mapping[str, int],
) -> Iterable[Metric]:
    size = _family("memory_size_bytes", "Memory of a device.")
    used = _family("memory_used_bytes", "Memory of a device that is taken, by whomever, as its driver tells.")
    promised = _family("memory_reserved_bytes", "Memory of a device, or the host, promised to launches under way.")
    ours = _family("memory_own_bytes", "Memory of a device, or the host, that living instances take.")
    for name in sorted({*devices, *looks}):
        look = looks.get(name)
        total_bytes = (look.total_bytes if look else None) or (devices[name].total_bytes if name in devices else 0)
        if total_bytes:
            size.add_metric((name,), total_bytes)
        if look is not None and look.total_bytes is not None and look.free_bytes is not None:
            used.add_metric((name,), look.total_bytes - look.free_bytes)
    for name in sorted({*devices, *looks, *reserved, *held}):
        promised.add_metric((name,), reserved.get(name, 0))
        ours.add_metric((name,), held.get(name, 0))
    return size, used, promised, ours


def _activity(looks: Mapping[str, DeviceSample]) -> Iterable[Metric]:
    busy = _family("utilisation_ratio", "Share of the last sampling period in which a device computed, 0 to 1.")
    power = _family("power_watts", "What a device draws.")
    heat = _family("temperature_celsius", "How hot a device is.")
    throttled = _family("throttled", "1 where something holds the clocks of a device down, else 0.")
    received = _family("pcie_received_bytes_per_second", "PCIe traffic to a device, over 20 ms each quarter minute.")
    sent = _family("pcie_sent_bytes_per_second", "PCIe traffic from a device, over 20 ms each quarter minute.")
    for name, look in sorted(looks.items()):
        throttled.add_metric((name,), bool(look.throttle_reasons))
        for family, value in (
            (busy, look.busy_rate),
            (power, look.power_watts),
            (heat, look.temperature_celsius),
            (received, look.received_bytes_rate),
            (sent, look.sent_bytes_rate),
        ):
            if value is not None:
                family.add_metric((name,), value)
    return busy, power, heat, throttled, received, sent


def _host(host: Host) -> Iterable[Metric]:
    for name, text, value in (
        ("size", "Memory of the host, within a container's limit.", host.total_bytes),
        ("available", "Memory of the host that can be taken, within a container's limit.", host.available_bytes),
    ):
        family = GaugeMetricFamily(f"paceline_host_memory_{name}_bytes", text)
        if value is not None:
            family.add_metric((), value)
        yield family


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"paceline_device_{name}", text, labels=("device",))
