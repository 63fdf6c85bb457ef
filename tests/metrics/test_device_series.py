"""Devices and the host as series."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.instances.evidence import DeviceSample
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.inventory.devices import Device, Host
from app.metrics.collectors import MetricsRegistry
from app.metrics.devices import DevicesCollector

LOOK = DeviceSample(100.0, 0.75, 30, 80, 412.5, 61, ("power",), sent_bytes_rate=5, received_bytes_rate=7)


class Scene:
    """What a scrape would see."""

    def __init__(self) -> None:
        self.looks = {"CUDA0": LOOK}
        self.reserved: dict[str, int] = {}
        self.records: list[InstanceRecord] = []
        self.host = Host(total_bytes=64, available_bytes=48)
        self.now_seconds = 101.0
        self.registry = MetricsRegistry()
        self.registry.register(
            DevicesCollector(
                lambda: [Device("CUDA0", total_bytes=79), Device("Vulkan0", total_bytes=16)],
                lambda: self.looks,
                lambda: self.reserved,
                lambda: self.records,
                lambda: self.host,
                lambda: self.now_seconds,
            )
        )

    def of(self, name: str, device: str = "CUDA0") -> float | None:
        return self.registry.get_sample_value(f"paceline_device_{name}", {"device": device})


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_the_driver_tells(scene: Scene) -> None:
    assert (scene.of("memory_size_bytes"), scene.of("memory_used_bytes")) == (80, 50)
    assert scene.of("utilisation_ratio") == 0.75
    assert (scene.of("power_watts"), scene.of("temperature_celsius"), scene.of("throttled")) == (412.5, 61, 1)
    assert scene.of("pcie_sent_bytes_per_second") == 5
    assert scene.of("pcie_received_bytes_per_second") == 7
    # Of a device that no driver tells of, the engine's own figure.
    assert scene.of("memory_size_bytes", "Vulkan0") == 16
    assert scene.of("memory_used_bytes", "Vulkan0") is None


def test_what_the_driver_does_not_tell_is_left_out(scene: Scene) -> None:
    scene.looks["CUDA0"] = DeviceSample(100.0, None, None, None)
    assert scene.of("memory_size_bytes") == 79
    for name in ("memory_used_bytes", "utilisation_ratio", "power_watts", "temperature_celsius"):
        assert scene.of(name) is None
    assert scene.of("throttled") == 0


def test_an_old_look_is_not_of_now(scene: Scene) -> None:
    scene.now_seconds = 160.0
    assert scene.of("utilisation_ratio") == 0.75
    scene.now_seconds = 161.0
    assert scene.of("utilisation_ratio") is None
    assert scene.of("memory_size_bytes") == 79
    assert scene.of("memory_own_bytes") == 0


def test_what_is_ours_and_what_is_promised(scene: Scene) -> None:
    memory = {
        "predicted": {"CUDA0": {"weights": 20, "compute": 5}, "host": {"compute": 3}},
        "measured": {"CUDA0": {"weights": 22}},
    }
    living = InstanceRecord(1, "p", 1, InstanceState.READY, "b1", (), datetime.now(UTC), {}, memory=memory)
    scene.records += [living, replace(living, id=2), replace(living, id=3, state=InstanceState.STOPPED)]
    scene.reserved["CUDA0"] = 9
    assert scene.of("memory_own_bytes") == 2 * (22 + 5)
    assert scene.of("memory_own_bytes", "host") == 2 * 3
    assert (scene.of("memory_reserved_bytes"), scene.of("memory_reserved_bytes", "Vulkan0")) == (9, 0)


def test_the_host(scene: Scene) -> None:
    def of(name: str) -> float | None:
        return scene.registry.get_sample_value(f"paceline_host_memory_{name}_bytes")

    assert (of("size"), of("available")) == (64, 48)
    scene.host = Host()
    assert (of("size"), of("available")) == (None, None)
