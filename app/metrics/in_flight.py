"""Requests that the relay has in flight."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class InFlightCollector(Collector):
    """`active` gives the profile of each request in flight, None where none is known yet; `profiles` all profiles."""

    def __init__(self, active: Callable[[], Iterable[str | None]], profiles: Callable[[], Collection[str]]) -> None:
        self._active = active
        self._profiles = profiles

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        family = GaugeMetricFamily(
            "paceline_requests_in_flight",
            "Requests that have arrived and not ended, waiting ones included.",
            labels=("profile",),
        )
        counted = Counter(profile_id or "" for profile_id in self._active())
        for profile_id in sorted({"", *self._profiles(), *counted}):
            family.add_metric((profile_id,), counted[profile_id])
        yield family
