"""All series together, told by a bus."""

import re

from fakes.finished_requests import finished

from app.events import EventBus
from app.instances.facts import ProfileRestarted, ResidencyEvicted, RestartCause, StartNotBegun, StartRefused
from app.metrics.exposition import openmetrics, plain_text
from app.metrics.series import Series, Sources
from app.profiles.catalog import ProfileDeleted
from bench.scrape import busy_series


def test_a_deleted_profile_leaves_nothing() -> None:
    profiles = ["gemma"]
    series = Series(Sources(profiles=lambda: profiles, methods=lambda: dict.fromkeys(profiles, "draft")))
    bus = EventBus()
    series.subscribe(bus)

    def of_profile() -> list[str]:
        return [line for line in plain_text(series.registry.collect()).decode().splitlines() if "gemma" in line]

    fresh = of_profile()
    assert 'paceline_spec_decode_num_drafts_total{profile="gemma",method="draft"} 0.0' in fresh
    bus.publish(finished(category="code"))
    bus.publish(StartNotBegun("gemma", "engine-unusable"))
    bus.publish(StartRefused("gemma", "device-memory"))
    bus.publish(ProfileRestarted("gemma", RestartCause.FALLBACK))
    bus.publish(ResidencyEvicted("other", (1,), ("gemma",), None))
    told = of_profile()
    assert 'paceline_instance_starts_total{profile="gemma",result="refused",reason="memory"} 1.0' in told
    assert 'paceline_instance_starts_total{profile="gemma",result="not-begun",reason="engine-unusable"} 1.0' in told
    assert 'paceline_request_timed_tokens_total{profile="gemma",method="draft",category="code"} 64.0' in told
    assert 'paceline_instance_restarts_total{profile="gemma",cause="fallback"} 1.0' in told
    assert 'paceline_residency_evictions_total{profile="gemma"} 1.0' in told
    assert 'paceline_request_queue_seconds_count{profile="gemma"} 1.0' in told
    profiles.clear()
    bus.publish(ProfileDeleted("gemma"))
    assert of_profile() == []
    profiles.append("gemma")
    assert of_profile() == fresh


def test_names_follow_the_conventions() -> None:
    for family in busy_series(2, 1).registry.collect():
        assert re.fullmatch(r"paceline_[a-z][a-z_]*", family.name)
        assert family.documentation.endswith(".")
        # The suffixes are those of counters and histograms alone.
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_milliseconds", "_percent"))
        for sample in family.samples:
            assert (
                sample.name.removeprefix(family.name)
                in {
                    "counter": {"_total"},
                    "gauge": {""},
                    "info": {"_info"},
                    "histogram": {"_bucket", "_count", "_sum"},
                }[family.type]
            )


def test_each_series_is_told_once() -> None:
    for body in (plain_text(busy_series(3, 2).registry.collect()), openmetrics(busy_series(3, 2).registry.collect())):
        named = [line.split(" ")[0] for line in body.decode().splitlines() if line[0] != "#"]
        assert len(named) == len(set(named))
