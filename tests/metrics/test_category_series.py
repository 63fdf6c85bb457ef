"""What single responses told, as series by category."""

import pytest
from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, UNDRAFTED, finished, rejected
from msgspec import structs

from app.instances.state import InstanceState, InstanceStateChanged
from app.llama_server.timings import EngineReport
from app.metrics.awake import Awake
from app.metrics.categories import CategoriesCollector
from app.metrics.collectors import MetricsRegistry
from app.profiles.catalog import ProfileDeleted
from app.proxy.categories import Category

NAMES = ("draft_tokens", "accepted_tokens", "timed_tokens", "generation_seconds")
NEVER = (None, None, None, None)
FIRST_LIFE = 1


class Stage:
    """The collector among others; both profiles are alive."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.awake = Awake(lambda: self.now_seconds)
        for profile in (CONTEXT.profile_id, PLAIN_CONTEXT.profile_id):
            self.awake.on_instance_state(InstanceStateChanged(FIRST_LIFE, profile, InstanceState.READY))
        self.collector = CategoriesCollector(self.awake)
        self.registry = MetricsRegistry()
        self.registry.register(self.collector)

    def values(self, profile: str, method: str, category: str) -> tuple[float | None, ...]:
        labels = {"profile": profile, "method": method, "category": category}
        return tuple(self.registry.get_sample_value(f"paceline_request_{name}_total", labels) for name in NAMES)

    def categories(self) -> set[str]:
        return {sample.labels["category"] for metric in self.registry.collect() for sample in metric.samples}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_each_category_has_sums_of_its_own(stage: Stage) -> None:
    told = stage.collector.on_request_finished
    told(finished(category="code"))
    told(finished(1, category="code"))
    told(finished(2, category="qa", report=structs.replace(DRAFTED, draft_tokens=9, accepted_tokens=3)))
    told(finished(3, category="code", context=PLAIN_CONTEXT, report=UNDRAFTED))
    # 65 tokens in 1.6 s: the first is free.
    assert stage.values("gemma", "draft", "code") == (100, 80, 128, pytest.approx(3.2))
    assert stage.values("gemma", "draft", "qa") == (9, 3, 64, pytest.approx(1.6))
    assert stage.values("plain", "none", "code") == (None, None, 64, pytest.approx(1.6))
    assert stage.values("gemma", "draft", "rag") == NEVER


def test_what_was_not_reported_is_not_zero_and_what_is_zero_was_reported(stage: Stage) -> None:
    told = stage.collector.on_request_finished
    told(finished(category="code", report=structs.replace(DRAFTED, accepted_tokens=None, generation_us=None)))
    told(finished(1, category="code", report=EngineReport(generated_tokens=1, generation_us=5)))
    told(rejected(2, category="code"))
    assert stage.categories() == set()
    told(finished(3, category="code", report=EngineReport(draft_tokens=0, accepted_tokens=0)))
    assert stage.values("gemma", "draft", "code") == (0, 0, None, None)


def test_the_label_has_the_words_of_the_classifier_and_other_for_none(stage: Stage) -> None:
    for category in (*Category, None):
        stage.collector.on_request_finished(finished(category=category and category.value))
    assert stage.categories() == {category.value for category in Category}
    assert stage.values("gemma", "draft", "other")[0] == 100


def test_a_profile_at_rest_shows_none_and_goes_on_where_it_was(stage: Stage) -> None:
    stage.collector.on_request_finished(finished(category="code"))
    stage.awake.on_instance_state(InstanceStateChanged(FIRST_LIFE, "gemma", InstanceState.STOPPED))
    stage.now_seconds = 899
    assert stage.values("gemma", "draft", "code")[0] == 50
    stage.now_seconds = 900
    assert stage.values("gemma", "draft", "code") == NEVER
    stage.awake.on_instance_state(InstanceStateChanged(FIRST_LIFE + 1, "gemma", InstanceState.LOADING))
    assert stage.values("gemma", "draft", "code")[0] == 50
    stage.collector.on_profile_deleted(ProfileDeleted("gemma"))
    assert stage.values("gemma", "draft", "code") == NEVER
