"""Requests that wait, and how many may: series that are read when somebody asks."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.instances.record import InstanceRecord


class QueuesCollector(Collector):
    """`limits` gives how many requests may wait for each profile, `limit` how many for all of them together.

    `queued` counts those that wait for one; `records` has the newest life of each, of profiles that are gone as well.
    """

    def __init__(
        self,
        limits: Callable[[], Mapping[str, int]],
        limit: int,
        queued: Callable[[str], int],
        records: Callable[[], Sequence[InstanceRecord]],
    ) -> None:
        self._limits = limits
        self._limit = limit
        self._queued = queued
        self._records = records

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        queued = GaugeMetricFamily(
            "paceline_instance_queued",
            "Requests that wait for the profile to be ready, or for their turn.",
            labels=("profile",),
        )
        limit = GaugeMetricFamily(
            "paceline_instance_queue_limit",
            "How many requests may wait for the profile (serving.queue_limit).",
            labels=("profile",),
        )
        limits, records = self._limits(), self._records()
        waiting = {profile_id: self._queued(profile_id) for profile_id in limits}
        for profile_id, number in sorted((waiting | {each.profile_id: each.queued for each in records}).items()):
            queued.add_metric((profile_id,), number)
        for profile_id, most in sorted(limits.items()):
            limit.add_metric((profile_id,), most)
        together = GaugeMetricFamily(
            "paceline_queue_limit", "How many requests may wait for profiles, all together (PACELINE_QUEUE_LIMIT)."
        )
        together.add_metric((), self._limit)
        yield from (queued, limit, together)
