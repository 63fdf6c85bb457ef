"""What the instances are at this moment, as series."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.instances.diagnosis import DEGRADATIONS
from app.instances.facts import ResidencyEvicted
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.metrics.collectors import MetricsRegistry
from app.metrics.instances import InstancesCollector
from app.profiles.catalog import ProfileDeleted


def record(profile_id: str, state: InstanceState, **more: Any) -> InstanceRecord:
    return InstanceRecord(1, profile_id, 1, state, "b1", (), datetime.now(UTC), {}, **more)


@pytest.fixture
def told() -> list[InstanceRecord]:
    return []


@pytest.fixture
def collector(told: list[InstanceRecord]) -> InstancesCollector:
    return InstancesCollector(lambda: told)


@pytest.fixture
def registry(collector: InstancesCollector) -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.register(collector)
    return registry


def test_memory_degradations_and_requests_of_a_living_instance(
    registry: MetricsRegistry, told: list[InstanceRecord]
) -> None:
    memory = {
        "predicted": {"CUDA0": {"weights": 100, "kv_cache": 0}, "host": {"compute": 3}},
        "measured": {"CUDA0": {"weights": 90}},
    }
    told.append(record("p", InstanceState.READY, degradations=["draft-on-host"], leases=2, slots=3, memory=memory))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"paceline_instance_{name}", {"profile": "p", **labels})

    assert value("memory_bytes", device="CUDA0", term="weights", source="predicted") == 100
    assert value("memory_bytes", device="CUDA0", term="weights", source="measured") == 90
    assert value("memory_bytes", device="host", term="compute", source="predicted") == 3
    assert value("memory_bytes", device="CUDA0", term="kv_cache", source="predicted") is None
    assert {name: value("degraded", degradation=name) for name in DEGRADATIONS} == {
        name: float(name == "draft-on-host") for name in DEGRADATIONS
    }
    assert (value("leases"), value("slots")) == (2, 3)


def test_who_has_ended_holds_nothing(registry: MetricsRegistry, told: list[InstanceRecord]) -> None:
    told.append(record("p", InstanceState.FAILED, slots=3, memory={"predicted": {"CUDA0": {"weights": 1}}}))
    assert [sample for metric in registry.collect() for sample in metric.samples] == []


def test_a_record_from_before_slots_were_kept_has_none(registry: MetricsRegistry, told: list[InstanceRecord]) -> None:
    told.append(record("p", InstanceState.READY, leases=1))
    assert registry.get_sample_value("paceline_instance_leases", {"profile": "p"}) == 1
    assert registry.get_sample_value("paceline_instance_slots", {"profile": "p"}) is None


def test_evictions_are_counted_for_those_who_went(registry: MetricsRegistry, collector: InstancesCollector) -> None:
    collector.on_evicted(ResidencyEvicted("wanted", (1, 2), ("a", "b"), 0.5))
    collector.on_evicted(ResidencyEvicted("wanted", (3,), ("a",), None))
    assert registry.get_sample_value("paceline_residency_evictions_total", {"profile": "a"}) == 2
    assert registry.get_sample_value("paceline_residency_evictions_total", {"profile": "b"}) == 1
    collector.on_profile_deleted(ProfileDeleted("a"))
    assert registry.get_sample_value("paceline_residency_evictions_total", {"profile": "a"}) is None


def test_every_profile_has_its_evictions_from_the_start() -> None:
    registry = MetricsRegistry()
    registry.register(InstancesCollector(tuple, lambda: ["quiet"]))
    assert registry.get_sample_value("paceline_residency_evictions_total", {"profile": "quiet"}) == 0
