"""How starts came out, as series."""

import pytest
from test_documents import rules_in_code

from app.instances.facts import ProfileRestarted, RestartCause, StartNotBegun, StartRefused
from app.instances.state import InstanceState, InstanceStateChanged
from app.metrics.collectors import MetricsRegistry
from app.metrics.starts import RULE_CLASSES, StartsCollector, reason_of
from app.profiles.catalog import ProfileDeleted


@pytest.fixture
def profiles() -> list[str]:
    return ["gemma"]


@pytest.fixture
def starts(profiles: list[str]) -> StartsCollector:
    return StartsCollector(lambda: profiles)


@pytest.fixture
def registry(starts: StartsCollector) -> MetricsRegistry:
    registry = MetricsRegistry()
    registry.register(starts)
    return registry


def change(state: InstanceState, instance_id: int = 1, reason: str | None = None) -> InstanceStateChanged:
    return InstanceStateChanged(instance_id, "gemma", state, reason)


def counted(registry: MetricsRegistry, result: str, reason: str = "") -> float | None:
    labels = {"profile": "gemma", "result": result, "reason": reason}
    return registry.get_sample_value("paceline_instance_starts_total", labels)


def test_each_start_has_one_result(registry: MetricsRegistry, starts: StartsCollector) -> None:
    assert counted(registry, "ready") == 0
    starts.on_instance_state(change(InstanceState.READY))
    starts.on_instance_state(change(InstanceState.FAILED, reason="exited"))  # a crash, and no failed start
    starts.on_instance_state(change(InstanceState.LOADING, 2))
    starts.on_instance_state(change(InstanceState.FAILED, 2, "out-of-memory"))
    starts.on_instance_state(change(InstanceState.FAILED, 3, "killed-by-signal-11"))
    starts.on_instance_state(change(InstanceState.STOPPED, 4))
    starts.on_refused(StartRefused("gemma", "device-memory"))
    starts.on_refused(StartRefused("gemma", "a-rule-of-tomorrow"))
    starts.on_not_begun(StartNotBegun("gemma", "engine-not-found"))
    starts.on_not_begun(StartNotBegun("gemma", "database-unavailable"))
    assert counted(registry, "ready") == 1
    assert counted(registry, "failed", "exited") is None
    assert counted(registry, "failed", "out-of-memory") == 1
    assert counted(registry, "failed", "killed-by-signal") == 1
    assert counted(registry, "refused", "memory") == 1
    assert counted(registry, "refused", "other") == 1
    assert counted(registry, "not-begun", "engine-not-found") == 1
    assert counted(registry, "not-begun", "other") == 1


def test_restarts_are_counted_by_their_cause_until_the_profile_goes(
    registry: MetricsRegistry, starts: StartsCollector, profiles: list[str]
) -> None:
    starts.on_restarted(ProfileRestarted("gemma", RestartCause.FAILURE))
    starts.on_restarted(ProfileRestarted("gemma", RestartCause.FAILURE))

    def restarts() -> dict[str, float | None]:
        name = "paceline_instance_restarts_total"
        return {cause: registry.get_sample_value(name, {"profile": "gemma", "cause": cause}) for cause in RestartCause}

    assert restarts() == {"failure": 2, "asked": None, "fallback": None}
    profiles.clear()
    starts.on_profile_deleted(ProfileDeleted("gemma"))
    assert set(restarts().values()) == {None}
    assert counted(registry, "ready") is None


@pytest.mark.parametrize(
    ("reason", "label"),
    [("bad-model", "bad-model"), ("killed-by-signal-9", "killed-by-signal"), (None, "other"), ("made up", "other")],
)
def test_reasons_are_a_closed_list(reason: str | None, label: str) -> None:
    assert reason_of(reason) == label


def test_the_classes_are_of_rules_that_there_are_each_once() -> None:
    rules = [rule for each in RULE_CLASSES.values() for rule in each]
    assert len(rules) == len(set(rules))
    assert set(rules) <= set(rules_in_code())
