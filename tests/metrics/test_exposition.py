"""A scrape as bytes, judged by the library's parsers and beside its writers."""

from collections.abc import Callable, Iterable

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.identifiers import first_id_at, id_text
from app.metrics.exposition import openmetrics, plain_text
from app.proxy.categories import Category
from bench.scrape import LINES_MOST, LIVING, PROFILES, busy_series

Families = list[Metric]


class Told:
    """A collector of these families."""

    def __init__(self, families: Families) -> None:
        self.families = families

    def collect(self) -> Families:
        return self.families


def awkward() -> Families:
    gauge = GaugeMetricFamily("some_bytes", 'A "help"\nwith \\ all.', labels=("name", "other"))
    gauge.add_metric(('a "quoted"\nback\\slash ü', ""), 1.5)
    for number, value in enumerate((float("inf"), float("-inf"), float("nan"), 1e300, 12_345_678_901, True)):
        gauge.add_metric((str(number), "x"), value)
    counter = CounterMetricFamily("things", "Things.", 3)
    info = InfoMetricFamily("build", "What runs.", {"version": "1"})
    return [gauge, counter, info, GaugeMetricFamily("empty", "Nothing.", labels=("name",))]


def read(families: Iterable[Metric]) -> list[object]:
    """What can be compared: no number equals NaN, and the order of labels says nothing."""
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [
                (sample.name, sorted(sample.labels.items()), repr(sample.value), sample.exemplar)
                for sample in family.samples
            ],
        )
        for family in families
    ]


@pytest.mark.parametrize("families", [awkward(), list(busy_series(3, 2).registry.collect())], ids=["awkward", "real"])
def test_it_says_what_the_library_says(families: Families) -> None:
    registry = CollectorRegistry()
    registry.register(Told(families))  # type: ignore[arg-type]
    plain, library = plain_text(families).decode(), generate_latest(registry).decode()
    assert read(parse_text(plain)) == read(parse_text(library))
    ours, theirs = openmetrics(families).decode(), generate_openmetrics(registry).decode()
    assert read(parse_openmetrics(ours)) == read(parse_openmetrics(theirs))


@pytest.mark.parametrize("write", [plain_text, openmetrics])
def test_fifty_profiles_that_have_all_served_fit_in_2500_lines(write: Callable[[Families], bytes]) -> None:
    body = write(list(busy_series().registry.collect()))
    assert PROFILES == 50
    assert body.count(b"\n") <= LINES_MOST == 2500
    assert b"_created" not in body
    for number in (0, LIVING - 1, LIVING, PROFILES - 1):
        assert b'paceline_request_generated_tokens_total{profile="profile-%02d-with-a-name"}' % number in body


def test_fresh_profiles_have_their_counters_and_need_less() -> None:
    fresh = busy_series(PROFILES, 0)
    text = plain_text(fresh.registry.collect()).decode()
    assert text.count("\n") < 1200
    # Requests that reached none of them waited, and ended: nothing else of theirs is timed.
    buckets = {line.split("{")[0] for line in text.splitlines() if 'profile=""' in line and "_bucket" in line}
    assert buckets == {f"paceline_request_{name}_seconds_bucket" for name in ("duration", "queue")}
    assert "_bucket" not in "".join(line for line in text.splitlines() if 'profile=""' not in line)


def test_exemplars_name_requests_in_openmetrics_alone() -> None:
    families = list(busy_series(1, 1).registry.collect())
    (family,) = [
        each for each in parse_openmetrics(openmetrics(families).decode()) if each.name.endswith("duration_seconds")
    ]
    exemplars = {
        sample.labels["le"]: sample.exemplar
        for sample in family.samples
        if sample.exemplar and sample.labels["profile"]
    }
    # The newest of the bucket.
    newest = id_text(first_id_at(1_760_000_000_000 + len(Category) - 1))
    assert {le: (each.labels, each.value) for le, each in exemplars.items()} == {"5.0": ({"request_id": newest}, 4.4)}
    assert b"request_id" not in plain_text(families)
