"""Series that rest and come back."""

import pytest
from fakes.acceptance_windows import window
from fakes.finished_requests import CONTEXT, finished

from app.events import EventBus
from app.instances.state import InstanceState, InstanceStateChanged
from app.metrics.rested import Rested
from app.metrics.series import Series, Sources
from app.profiles.catalog import ProfileDeleted

A, B = ("a", "x"), ("b",)


def test_one_that_comes_back_shows_what_it_had_once_more() -> None:
    rested: Rested[int] = Rested()
    assert rested.shown({A: 1, B: 7}) == {A: 1, B: 7}
    assert rested.shown({A: 2, B: 7}) == {A: 2, B: 7}
    assert rested.shown({B: 8}) == {B: 8}
    assert rested.shown({B: 9}) == {B: 9}
    assert rested.shown({A: 5, B: 9}) == {A: 2, B: 9}
    assert rested.shown({A: 5, B: 9}) == {A: 5, B: 9}


@pytest.mark.parametrize("is_resting", [False, True])
def test_what_is_forgotten_begins_anew(is_resting: bool) -> None:
    rested: Rested[int] = Rested()
    rested.shown({A: 1, B: 1})
    if is_resting:
        rested.shown({})
    rested.forget("a")
    assert rested.shown({}) == {}
    assert rested.shown({A: 5, B: 5}) == {A: 5, B: 1}


class Scraper:
    """A service whose one profile sleeps and wakes, and somebody who scrapes it."""

    def __init__(self) -> None:
        self.now = 0.0
        methods = {CONTEXT.profile_id: CONTEXT.method}
        series = Series(Sources(profiles=lambda: list(methods), methods=lambda: methods), clock=lambda: self.now)
        self.registry = series.registry
        self.bus = EventBus()
        series.subscribe(self.bus)

    def serve(self) -> None:
        """A load, a request and its drafts."""
        self.bus.publish(InstanceStateChanged(1, CONTEXT.profile_id, InstanceState.READY))
        self.bus.publish(finished(category="code"))
        self.bus.publish(window())
        self.bus.publish(InstanceStateChanged(1, CONTEXT.profile_id, InstanceState.STOPPED))

    def scrape(self) -> dict[str, float]:
        """Every kind of series that rests, one of each."""
        names = (
            "paceline_request_time_to_first_token_seconds_count",
            "paceline_request_timed_tokens_total",
            "paceline_spec_decode_num_accepted_tokens_per_pos_total",
            "paceline_spec_decode_acceptance_ratio_count",
        )
        samples = [sample for metric in self.registry.collect() for sample in metric.samples if sample.name in names]
        return {sample.name: sample.value for sample in samples if sample.labels.get("position", "0") == "0"}


def test_a_scraper_sees_what_happened_before_it_noticed_the_awakening() -> None:
    scraper = Scraper()
    scraper.serve()
    first = scraper.scrape()
    assert len(first) == 4
    scraper.now += 1000
    assert scraper.scrape() == {}
    scraper.serve()
    assert scraper.scrape() == first
    assert scraper.scrape() == {name: 2 * value for name, value in first.items()}


def test_a_profile_that_is_made_anew_has_no_past() -> None:
    scraper = Scraper()
    scraper.serve()
    first = scraper.scrape()
    scraper.now += 1000
    scraper.scrape()
    scraper.bus.publish(ProfileDeleted(CONTEXT.profile_id))
    for _ in range(2):
        scraper.serve()
    assert scraper.scrape() == {name: 2 * value for name, value in first.items()}
