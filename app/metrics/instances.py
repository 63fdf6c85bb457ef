"""What the instances are at this moment, and how often some had to go: series that are read when somebody asks."""

from collections.abc import Callable, Collection, Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.instances.diagnosis import DEGRADATIONS
from app.instances.facts import ResidencyEvicted
from app.instances.record import InstanceRecord
from app.metrics.kept import Counts
from app.metrics.rested import Labels
from app.profiles.catalog import ProfileDeleted


class InstancesCollector(Collector):
    """`records` gives the newest life of each profile; those that have ended hold nothing and are not degraded.

    `profiles` gives the ids of all profiles.
    """

    def __init__(
        self,
        records: Callable[[], Sequence[InstanceRecord]],
        profiles: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._records = records

        def from_start() -> Collection[Labels]:
            return [(profile_id,) for profile_id in profiles()]

        self._evictions = Counts(
            "paceline_residency_evictions",
            "Instances that ended to make room for another profile.",
            ("profile",),
            from_start,
        )

    def on_evicted(self, event: ResidencyEvicted) -> None:
        """Some instances made room."""
        for profile_id in event.evicted_profile_ids:
            self._evictions.add((profile_id,))

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        self._evictions.forget(event.profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        memory = GaugeMetricFamily(
            "paceline_instance_memory_bytes",
            "What a living instance takes, as planned and as its engine told.",
            labels=("profile", "device", "term", "source"),
        )
        degraded = GaugeMetricFamily(
            "paceline_instance_degraded",
            "1 where a living instance has the degradation, else 0.",
            labels=("profile", "degradation"),
        )
        leases = GaugeMetricFamily(
            "paceline_instance_leases", "Requests that hold a living instance.", labels=("profile",)
        )
        slots = GaugeMetricFamily(
            "paceline_instance_slots",
            "How many requests a living instance works on at once; what it holds beyond that waits inside the engine.",
            labels=("profile",),
        )
        for record in self._records():
            if record.state.is_terminal:
                continue
            leases.add_metric([record.profile_id], record.leases)
            if record.slots is not None:
                slots.add_metric([record.profile_id], record.slots)
            for degradation in sorted(DEGRADATIONS):
                degraded.add_metric([record.profile_id, degradation], degradation in record.degradations)
            for source, devices in record.memory.items():
                for device, terms in devices.items():
                    for term, n_bytes in terms.items():
                        if n_bytes:
                            memory.add_metric([record.profile_id, device, term, source], n_bytes)
        yield from (memory, degraded, leases, slots)
        yield from self._evictions.collect()
