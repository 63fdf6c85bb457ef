"""The registry of an application, and the series that are read when somebody asks."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector


class MetricsRegistry(CollectorRegistry):
    """A registry without the `_created` series, which would add half as many series again and tell nobody much.

    The library can only switch them off for the whole process; here it is a matter of each registry.
    """

    def collect(self) -> Iterable[Metric]:
        """Every metric, with those samples left out."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class ServiceCollector(Collector):
    """What the service is and how its database keeps up, asked for at each scrape.

    `engine_build` answers None while no engine is found; `backlog` and `lost_rows` are those of the database and the
    recorder.
    """

    def __init__(
        self,
        version: str,
        engine_build: Callable[[], str | None],
        backlog: Callable[[], int],
        lost_rows: Callable[[], int],
    ) -> None:
        self._version = version
        self._engine_build = engine_build
        self._backlog = backlog
        self._lost_rows = lost_rows

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield InfoMetricFamily(
            "paceline_build",
            "What runs.",
            {"version": self._version, "engine_build": self._engine_build() or ""},
        )
        yield GaugeMetricFamily(
            "paceline_database_backlog", "Pieces of work that are not committed yet.", self._backlog()
        )
        yield CounterMetricFamily(
            "paceline_requests_unrecorded",
            "Rows, of requests and of acceptance windows, that could not be written.",
            self._lost_rows(),
        )


class SpillCollector(Collector):
    """How many rows the spill file holds, and how many came from it into the database."""

    def __init__(self, spilled_rows: Callable[[], int], replayed_rows: Callable[[], int]) -> None:
        self._spilled_rows = spilled_rows
        self._replayed_rows = replayed_rows

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield GaugeMetricFamily(
            "paceline_telemetry_spilled_rows", "Rows that wait in the spill file.", self._spilled_rows()
        )
        yield CounterMetricFamily(
            "paceline_telemetry_replayed_rows",
            "Rows that came from the spill file into the database.",
            self._replayed_rows(),
        )


class AccessCollector(Collector):
    """Who was not let in. `refused` answers how often, by reason."""

    def __init__(self, refused: Callable[[], Mapping[str, int]]) -> None:
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        """The series of this moment; every reason has one from the start."""
        family = CounterMetricFamily(
            "paceline_access_refused", "Requests that were refused before anything else.", labels=("reason",)
        )
        for reason, count in self._refused().items():
            family.add_metric((reason,), count)
        yield family
