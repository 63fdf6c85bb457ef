"""Counts and histograms that are kept here."""

import pytest

from app.instances.state import InstanceState, InstanceStateChanged
from app.metrics.awake import Awake
from app.metrics.collectors import MetricsRegistry
from app.metrics.kept import Counts, Histograms


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_counts_are_there_from_the_start_until_they_are_forgotten(registry: MetricsRegistry) -> None:
    profiles = ["a"]
    counts = Counts("things", "Things.", ("profile",), lambda: [(name,) for name in profiles])
    registry.register(counts)
    assert registry.get_sample_value("things_total", {"profile": "a"}) == 0
    counts.add(("a",), 3)
    counts.add(("a",))
    counts.add(("b",))
    assert registry.get_sample_value("things_total", {"profile": "a"}) == 4
    assert registry.get_sample_value("things_total", {"profile": "b"}) == 1
    profiles.clear()
    counts.forget("a")
    assert registry.get_sample_value("things_total", {"profile": "a"}) is None
    assert registry.get_sample_value("things_total", {"profile": "b"}) == 1


def test_a_bucket_holds_what_is_not_above_its_bound(registry: MetricsRegistry) -> None:
    histograms = Histograms("some_seconds", "Some.", (1, 2.5), lambda: [("a",)])
    registry.register(histograms)
    for value in (0.5, 1.0, 1.1, 2.5, 7.0):
        histograms.observe(("a",), value)
    buckets = {
        le: registry.get_sample_value("some_seconds_bucket", {"profile": "a", "le": le})
        for le in ("1.0", "2.5", "+Inf")
    }
    assert buckets == {"1.0": 2, "2.5": 4, "+Inf": 5}
    assert registry.get_sample_value("some_seconds_count", {"profile": "a"}) == 5
    assert registry.get_sample_value("some_seconds_sum", {"profile": "a"}) == pytest.approx(12.1)


def test_a_histogram_at_rest_is_left_out_and_comes_back_with_what_it_had(registry: MetricsRegistry) -> None:
    clock = Clock()
    awake = Awake(clock)
    histograms = Histograms("some_seconds", "Some.", (1,), awake.labels)
    registry.register(histograms)

    def count() -> float | None:
        return registry.get_sample_value("some_seconds_count", {"profile": "a"})

    def change(state: InstanceState, instance_id: int) -> None:
        awake.on_instance_state(InstanceStateChanged(instance_id, "a", state))

    assert count() is None
    change(InstanceState.LOADING, 1)
    assert count() == 0
    histograms.observe(("a",), 0.5)
    clock.now += 3600
    assert count() == 1  # it lives
    change(InstanceState.STOPPED, 1)
    clock.now += 899
    assert count() == 1
    clock.now += 1
    assert count() is None
    change(InstanceState.LOADING, 2)
    assert count() == 1
    clock.now += 3600
    change(InstanceState.FAILED, 1)  # the end of an older one says nothing
    clock.now += 3600
    assert count() == 1
    awake.forget("a")
    histograms.forget("a")
    assert count() is None
    awake.touch("a")
    assert count() == 0


def test_what_reached_no_profile_has_a_histogram_only_where_it_has_a_count(registry: MetricsRegistry) -> None:
    seen = Histograms("seen_seconds", "Seen.", (1,), lambda: [("",), ("a",)])
    unseen = Histograms("unseen_seconds", "Unseen.", (1,), lambda: [("",), ("a",)])
    seen.observe(("",), 0.5)
    for histograms in (seen, unseen):
        registry.register(histograms)
    counts = {
        (name, profile): registry.get_sample_value(f"{name}_seconds_count", {"profile": profile})
        for name in ("seen", "unseen")
        for profile in ("", "a")
    }
    assert counts == {("seen", ""): 1, ("seen", "a"): 0, ("unseen", ""): None, ("unseen", "a"): 0}
