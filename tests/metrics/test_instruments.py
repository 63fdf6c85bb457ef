"""What the series say after known events; read back from the exposition, as a scraper does."""

from itertools import pairwise

import pytest
from fakes.finished_requests import DRAFTED, PLAIN_CONTEXT, UNDRAFTED, finished, rejected
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.events import EventBus
from app.instances.state import InstanceState, InstanceStateChanged
from app.llama_server.timings import EngineReport
from app.metrics.awake import Awake
from app.metrics.collectors import MetricsRegistry
from app.metrics.instruments import Instruments
from app.profiles.catalog import ProfileDeleted
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished

Sample = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry()


@pytest.fixture
def instruments(registry: MetricsRegistry) -> Instruments:
    return Instruments(registry)


def scraped(registry: MetricsRegistry) -> dict[Sample, float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(registry: MetricsRegistry, name: str, **labels: str) -> float | None:
    return scraped(registry).get((f"paceline_{name}", frozenset(labels.items())))


def test_a_request_is_counted_with_exact_values(registry: MetricsRegistry, instruments: Instruments) -> None:
    instruments.on_request_finished(finished())
    instruments.on_request_finished(finished(1, outcome=Outcome.CLIENT_GONE, report=EngineReport()))
    instruments.on_request_finished(finished(2, endpoint=Endpoint.COMPLETIONS))
    chat = {"profile": "gemma", "endpoint": "chat_completions"}
    assert of(registry, "requests_total", **chat, outcome="completed") == 1
    assert of(registry, "requests_total", **chat, outcome="client_gone") == 1
    assert of(registry, "requests_total", profile="gemma", endpoint="completions", outcome="completed") == 1
    assert of(registry, "request_prompt_tokens_total", profile="gemma") == 60
    assert of(registry, "request_cached_tokens_total", profile="gemma") == 20
    assert of(registry, "request_generated_tokens_total", profile="gemma") == 130
    assert of(registry, "request_duration_seconds_sum", profile="gemma") == 6.0
    assert of(registry, "request_duration_seconds_count", profile="gemma") == 3
    assert of(registry, "request_time_to_first_token_seconds_sum", profile="gemma") == 0.75
    # 64 tokens after the first in 1.6 s.
    assert of(registry, "request_generation_tokens_per_second_sum", profile="gemma") == 80.0
    assert of(registry, "request_generation_tokens_per_second_bucket", profile="gemma", le="40.0") == 2
    assert of(registry, "request_generation_tokens_per_second_bucket", profile="gemma", le="32.0") == 0
    assert of(registry, "request_time_per_output_token_seconds_sum", profile="gemma") == pytest.approx(0.05)
    assert of(registry, "request_time_per_output_token_seconds_count", profile="gemma") == 2


def test_requests_that_compute_nothing_are_counted_and_not_timed(
    registry: MetricsRegistry, instruments: Instruments
) -> None:
    """Whoever looks at /slots each second would hide how long requests take."""
    for number, endpoint in enumerate((Endpoint.SLOTS, Endpoint.TOKENIZE, Endpoint.UPSTREAM, Endpoint.EMBEDDINGS)):
        instruments.on_request_finished(finished(number, endpoint=endpoint))
    assert of(registry, "requests_total", profile="gemma", endpoint="slots", outcome="completed") == 1
    assert of(registry, "request_duration_seconds_count", profile="gemma") == 1


def test_what_was_not_reported_is_not_observed(registry: MetricsRegistry, instruments: Instruments) -> None:
    instruments.on_request_finished(finished(report=UNDRAFTED, time_to_first_token_us=None, stream=False))
    instruments.on_request_finished(finished(1, report=EngineReport(generated_tokens=1, generation_us=0)))
    instruments.on_request_finished(finished(2, report=DRAFTED))
    instruments.on_request_finished(finished(3, report=EngineReport(), time_to_first_token_us=None))
    assert of(registry, "request_duration_seconds_count", profile="gemma") == 4
    assert of(registry, "request_time_to_first_token_seconds_count", profile="gemma") == 2
    assert of(registry, "request_generation_tokens_per_second_count", profile="gemma") == 2


def test_no_label_value_comes_from_a_client(registry: MetricsRegistry, instruments: Instruments) -> None:
    for number in range(50):
        instruments.on_request_finished(rejected(number, requested_model=f"made-up-{number}"))
    instruments.on_request_finished(rejected(51, profile_id="gemma", requested_model="an alias"))
    samples = scraped(registry)
    assert of(registry, "requests_total", profile="", endpoint="chat_completions", outcome="rejected") == 50
    values = {value for _, labels in samples for name, value in labels if name == "profile"}
    assert values == {"", "gemma"}
    exposition = generate_latest(registry)
    assert b"made-up" not in exposition
    assert b"alias" not in exposition


def change(state: InstanceState, instance_id: int = 1, load_seconds: float | None = None) -> InstanceStateChanged:
    return InstanceStateChanged(instance_id, "gemma", state, load_seconds=load_seconds)


def test_exactly_one_state_is_shown(registry: MetricsRegistry, instruments: Instruments) -> None:
    for state in (InstanceState.STARTING, InstanceState.LOADING, InstanceState.READY):
        instruments.on_instance_state_changed(change(state))
        shown = {other: of(registry, "instance_state", profile="gemma", state=other) for other in InstanceState}
        assert shown == {other: float(other is state) for other in InstanceState}


def test_a_profile_at_rest_shows_no_more_than_its_state(registry: MetricsRegistry) -> None:
    now, profiles = [0.0], ["gemma", "never-started"]
    instruments = Instruments(registry, lambda: profiles, Awake(lambda: now[0]))

    def states(profile: str) -> dict[str, float]:
        shown = {state: of(registry, "instance_state", profile=profile, state=state) for state in InstanceState}
        return {state: value for state, value in shown.items() if value is not None}

    assert states("never-started") == {"stopped": 1}
    instruments.on_instance_state_changed(change(InstanceState.LOADING))
    assert len(states("gemma")) == len(InstanceState)
    instruments.on_instance_state_changed(change(InstanceState.FAILED))
    now[0] += 899
    assert len(states("gemma")) == len(InstanceState)
    now[0] += 1
    assert states("gemma") == {"failed": 1}


def test_the_end_of_an_older_instance_changes_nothing(registry: MetricsRegistry, instruments: Instruments) -> None:
    instruments.on_instance_state_changed(change(InstanceState.READY, instance_id=2))
    instruments.on_instance_state_changed(change(InstanceState.STOPPED, instance_id=1))
    assert of(registry, "instance_state", profile="gemma", state="ready") == 1
    assert of(registry, "instance_state", profile="gemma", state="stopped") == 0


def test_a_load_is_measured_once(registry: MetricsRegistry, instruments: Instruments) -> None:
    instruments.on_instance_state_changed(change(InstanceState.LOADING))
    instruments.on_instance_state_changed(change(InstanceState.READY, load_seconds=12.5))
    instruments.on_instance_state_changed(change(InstanceState.STOPPED, load_seconds=12.5))
    instruments.on_instance_state_changed(change(InstanceState.READY, instance_id=2, load_seconds=2.5))
    assert of(registry, "instance_last_load_seconds", profile="gemma") == 2.5
    assert of(registry, "instance_load_seconds_count", profile="gemma") == 2
    assert of(registry, "instance_load_seconds_sum", profile="gemma") == 15.0


def test_a_deleted_profile_takes_its_series_along(registry: MetricsRegistry, instruments: Instruments) -> None:
    bus = EventBus()
    bus.subscribe(RequestFinished, instruments.on_request_finished)
    bus.subscribe(InstanceStateChanged, instruments.on_instance_state_changed)
    bus.subscribe(ProfileDeleted, instruments.on_profile_deleted)
    bus.publish(finished(context=PLAIN_CONTEXT))
    before = scraped(registry)
    for outcome in Outcome:
        bus.publish(finished(outcome=outcome))
    bus.publish(change(InstanceState.READY, load_seconds=1.0))
    assert any(("profile", "gemma") in labels for _, labels in scraped(registry))
    bus.publish(ProfileDeleted("gemma"))
    assert scraped(registry) == before
    bus.publish(ProfileDeleted("never-used"))
    bus.publish(finished())
    assert of(registry, "request_duration_seconds_count", profile="gemma") == 1


def test_the_same_profile_again_starts_with_its_first_instance(
    registry: MetricsRegistry, instruments: Instruments
) -> None:
    instruments.on_instance_state_changed(change(InstanceState.STOPPED, instance_id=9))
    instruments.forget("gemma")
    instruments.on_instance_state_changed(change(InstanceState.READY, instance_id=3))
    assert of(registry, "instance_state", profile="gemma", state="ready") == 1


def test_two_applications_do_not_share_series() -> None:
    one, other = MetricsRegistry(), MetricsRegistry()
    Instruments(one).on_request_finished(finished())
    Instruments(other)
    assert of(other, "request_duration_seconds_count", profile="gemma") is None


def test_a_step_of_the_rate_is_smaller_than_a_speed_up_that_matters(
    registry: MetricsRegistry, instruments: Instruments
) -> None:
    instruments.on_request_finished(finished())
    bounds = sorted(
        float(dict(labels)["le"])
        for name, labels in scraped(registry)
        if name == "paceline_request_generation_tokens_per_second_bucket"
    )
    usual = [bound for bound in bounds if 10 <= bound <= 100]
    assert all(upper / lower <= 1.3 for lower, upper in pairwise(usual))
