"""Requests in flight, by profile."""

from app.metrics.collectors import MetricsRegistry
from app.metrics.in_flight import InFlightCollector


def test_each_profile_has_its_requests_and_those_of_none_are_counted_too() -> None:
    active: list[str | None] = ["a", None, "a"]
    registry = MetricsRegistry()
    registry.register(InFlightCollector(lambda: active, lambda: ["a", "b"]))

    def value(profile: str) -> float | None:
        return registry.get_sample_value("paceline_requests_in_flight", {"profile": profile})

    assert {name: value(name) for name in ("a", "b", "")} == {"a": 2, "b": 0, "": 1}
    active.clear()
    assert {name: value(name) for name in ("a", "b", "")} == {"a": 0, "b": 0, "": 0}
