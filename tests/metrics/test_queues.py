"""Requests that wait, and how many may, as series."""

from datetime import UTC, datetime

from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.metrics.collectors import MetricsRegistry
from app.metrics.queues import QueuesCollector


def test_every_profile_has_its_queue_also_before_its_first_life_and_after_its_last() -> None:
    gone = InstanceRecord(1, "gone", 1, InstanceState.FAILED, "b1", (), datetime.now(UTC), {}, queued=3)
    waiting, limits = {"wanted": 4, "quiet": 0}, {"wanted": 8, "quiet": 32}
    registry = MetricsRegistry()
    registry.register(QueuesCollector(lambda: limits, 256, lambda profile_id: waiting[profile_id], lambda: [gone]))

    def values(name: str) -> dict[str, float]:
        (family,) = [metric for metric in registry.collect() if metric.name == name]
        return {sample.labels["profile"]: sample.value for sample in family.samples}

    assert values("paceline_instance_queued") == {"wanted": 4, "quiet": 0, "gone": 3}
    assert values("paceline_instance_queue_limit") == limits
    assert registry.get_sample_value("paceline_queue_limit") == 256
    limits["wanted"] = 0
    assert values("paceline_instance_queue_limit")["wanted"] == 0
