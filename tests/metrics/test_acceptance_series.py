"""The acceptance rate as a histogram."""

import pytest
from fakes.acceptance_windows import window

from app.metrics.acceptance import AcceptanceCollector
from app.metrics.awake import Awake
from app.metrics.collectors import MetricsRegistry
from app.profiles.catalog import ProfileDeleted

NAME = "paceline_spec_decode_acceptance_ratio"
LABELS = {"profile": "gemma", "method": "draft"}


@pytest.fixture
def awake() -> Awake:
    return Awake()


@pytest.fixture
def collector(awake: Awake) -> AcceptanceCollector:
    return AcceptanceCollector(lambda: {"gemma": "draft"}, awake)


@pytest.fixture
def registry(collector: AcceptanceCollector) -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.register(collector)
    return registry


def test_each_window_is_one_value(collector: AcceptanceCollector, registry: MetricsRegistry, awake: Awake) -> None:
    assert registry.get_sample_value(f"{NAME}_count", LABELS) is None
    awake.touch("gemma")
    assert registry.get_sample_value(f"{NAME}_count", LABELS) == 0
    collector.on_window(window())  # 21 of 28
    collector.on_window(window(accepted_tokens=7))
    assert registry.get_sample_value(f"{NAME}_sum", LABELS) == 1.0
    assert registry.get_sample_value(f"{NAME}_bucket", {**LABELS, "le": "0.3"}) == 1
    assert registry.get_sample_value(f"{NAME}_bucket", {**LABELS, "le": "0.7"}) == 1
    assert registry.get_sample_value(f"{NAME}_bucket", {**LABELS, "le": "0.8"}) == 2


@pytest.mark.parametrize(
    ("draft_tokens", "rounded_to", "count"), [(0, 1, 0), (None, 1, 0), (1, 1, 1), (990, 10, 0), (1000, 10, 1)]
)
def test_windows_that_are_too_coarse_for_a_rate_are_left_out(
    draft_tokens: int | None,
    rounded_to: int,
    count: int,
    collector: AcceptanceCollector,
    registry: MetricsRegistry,
    awake: Awake,
) -> None:
    awake.touch("gemma")
    collector.on_window(window(draft_tokens=draft_tokens, accepted_tokens=1, rounded_to=rounded_to))
    assert registry.get_sample_value(f"{NAME}_count", LABELS) == count


def test_a_profile_that_is_gone_takes_its_series_along(
    collector: AcceptanceCollector, registry: MetricsRegistry, awake: Awake
) -> None:
    awake.touch("gemma")
    collector.on_window(window())
    collector.on_profile_deleted(ProfileDeleted("gemma"))
    assert registry.get_sample_value(f"{NAME}_count", LABELS) == 0  # it speculates, and begins anew
    awake.forget("gemma")
    assert registry.get_sample_value(f"{NAME}_count", LABELS) is None
