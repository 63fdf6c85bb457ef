"""The registry without `_created`, and what is asked for at each scrape."""

import pytest
from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from app.metrics.collectors import AccessCollector, MetricsRegistry, ServiceCollector


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry()


def test_there_are_no_created_series(registry: MetricsRegistry) -> None:
    Counter("some", "Some.", registry=registry).inc()
    Histogram("other", "Other.", registry=registry).observe(1)
    assert b"_created" not in generate_latest(registry)
    assert b"_created" not in generate_openmetrics(registry)
    assert registry.get_sample_value("some_total") == 1


def test_the_service_is_asked_at_each_scrape(registry: MetricsRegistry) -> None:
    answers: dict[str, int] = {"backlog": 3, "lost": 0}
    builds: list[str | None] = [None]
    registry.register(
        ServiceCollector("0.1.0", lambda: builds[-1], lambda: answers["backlog"], lambda: answers["lost"])
    )
    assert registry.get_sample_value("paceline_build_info", {"version": "0.1.0", "engine_build": ""}) == 1
    assert registry.get_sample_value("paceline_database_backlog") == 3
    builds.append("b11434")
    answers.update(backlog=0, lost=2)
    assert registry.get_sample_value("paceline_build_info", {"version": "0.1.0", "engine_build": "b11434"}) == 1
    assert registry.get_sample_value("paceline_build_info", {"version": "0.1.0", "engine_build": ""}) is None
    assert registry.get_sample_value("paceline_database_backlog") == 0
    assert registry.get_sample_value("paceline_requests_unrecorded_total") == 2


def test_openmetrics_takes_it_all(registry: MetricsRegistry) -> None:
    registry.register(ServiceCollector("0.1.0", lambda: "b1", lambda: 0, lambda: 0))
    families = text_string_to_metric_families(generate_openmetrics(registry).decode())
    assert {family.name for family in families} == {
        "paceline_build",
        "paceline_database_backlog",
        "paceline_requests_unrecorded",
    }


def test_refusals_are_counted_by_their_reason(registry: MetricsRegistry) -> None:
    counts = {"missing": 0, "unknown": 2}
    registry.register(AccessCollector(lambda: counts))
    counts["unknown"] += 1
    assert registry.get_sample_value("paceline_access_refused_total", {"reason": "missing"}) == 0
    assert registry.get_sample_value("paceline_access_refused_total", {"reason": "unknown"}) == 3
