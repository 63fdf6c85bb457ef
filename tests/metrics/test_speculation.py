"""The engines' own counts as series."""

import pytest
from fakes.acceptance_windows import window
from fakes.finished_requests import CONTEXT, PLAIN_CONTEXT
from prometheus_client import generate_latest

from app.llama_server.counters import EngineCounters
from app.metrics.collectors import MetricsRegistry
from app.metrics.speculation import POSITIONS_MOST, SpeculationCollector
from app.profiles.catalog import ProfileDeleted


@pytest.fixture
def speculating() -> dict[str, str]:
    """The profiles that speculate, with their method."""
    return {}


@pytest.fixture
def collector(speculating: dict[str, str]) -> SpeculationCollector:
    return SpeculationCollector(lambda: speculating)


@pytest.fixture
def registry(collector: SpeculationCollector) -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.register(collector)
    return registry


def lines(registry: MetricsRegistry) -> list[str]:
    """The samples of a scrape."""
    return [line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]


def test_what_is_scraped(
    registry: MetricsRegistry, collector: SpeculationCollector, speculating: dict[str, str]
) -> None:
    speculating |= {"gemma": "draft", "other": "ngram-mod"}
    for _ in range(2):
        collector.on_window(window())
    assert lines(registry) == [
        'paceline_spec_decode_num_drafts_total{method="draft",profile="gemma"} 20.0',
        'paceline_spec_decode_num_drafts_total{method="ngram-mod",profile="other"} 0.0',
        'paceline_spec_decode_num_draft_tokens_total{method="draft",profile="gemma"} 56.0',
        'paceline_spec_decode_num_draft_tokens_total{method="ngram-mod",profile="other"} 0.0',
        'paceline_spec_decode_num_accepted_tokens_total{method="draft",profile="gemma"} 42.0',
        'paceline_spec_decode_num_accepted_tokens_total{method="ngram-mod",profile="other"} 0.0',
        'paceline_spec_decode_num_accepted_tokens_per_pos_total{method="draft",position="0",profile="gemma"} 18.0',
        'paceline_spec_decode_num_accepted_tokens_per_pos_total{method="draft",position="1",profile="gemma"} 16.0',
        'paceline_spec_decode_num_accepted_tokens_per_pos_total{method="draft",position="2",profile="gemma"} 8.0',
    ]


def test_series_of_another_method_or_of_no_profile_that_speculates_now_stay(
    registry: MetricsRegistry, collector: SpeculationCollector, speculating: dict[str, str]
) -> None:
    collector.on_window(window())
    speculating["gemma"] = "mtp"
    drafts = "paceline_spec_decode_num_drafts_total"
    assert registry.get_sample_value(drafts, {"profile": "gemma", "method": "draft"}) == 10
    assert registry.get_sample_value(drafts, {"profile": "gemma", "method": "mtp"}) == 0


def test_positions_grow_with_the_drafts_and_have_an_end(
    registry: MetricsRegistry, collector: SpeculationCollector
) -> None:
    collector.on_window(window(accepted_by_position=()))
    collector.on_window(window(accepted_by_position=(1,) * 64))
    collector.on_window(window(accepted_by_position=(2, 1)))
    collector.on_window(window(accepted_by_position=None))
    found = [line.split()[-1] for line in lines(registry) if "per_pos" in line]
    assert found == ["3.0", "2.0", *["1.0"] * (POSITIONS_MOST - 2)]


def test_what_an_engine_does_not_tell_adds_nothing(registry: MetricsRegistry, collector: SpeculationCollector) -> None:
    collector.on_window(window(counts=EngineCounters(draft_tokens=5)))
    assert [line.split()[-1] for line in lines(registry)] == ["0.0", "5.0", "0.0"]


def test_a_profile_that_is_gone_takes_its_series_along(
    registry: MetricsRegistry, collector: SpeculationCollector
) -> None:
    for context in (CONTEXT, PLAIN_CONTEXT):
        collector.on_window(window(context=context))
    collector.on_profile_deleted(ProfileDeleted("gemma"))
    assert {line.split('profile="')[1].split('"')[0] for line in lines(registry)} == {"plain"}


def test_who_is_not_read_is_told_of_those_that_live() -> None:
    registry = MetricsRegistry()
    registry.register(SpeculationCollector(dict, paused=lambda: {"read": False, "scraped": True}))
    assert [line for line in lines(registry) if "_paused" in line] == [
        'paceline_spec_decode_paused{profile="read"} 0.0',
        'paceline_spec_decode_paused{profile="scraped"} 1.0',
    ]
