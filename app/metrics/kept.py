"""Counts and histograms that are kept here: cheap to add to on the event loop, and read from a scrape's own thread.

Each operation on a dictionary or list is one step of the interpreter, and a scrape reads copies, so no locks are
needed. The first label is always `profile`: series of the profiles that exist are there from the start, with 0.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from app.identifiers import id_text
from app.metrics.rested import Labels, Rested

# The sum, counts by bucket, and the newest request of each.
_Shown = tuple[float, Sequence[int], Sequence[tuple[int, float] | None]]


def none_yet() -> Collection[Labels]:
    """No series from the start."""
    return ()


class Counts(Collector):
    """A counter with labels. `from_start` gives the label values that have a series before anything is counted."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], from_start: Callable[[], Collection[Labels]] = none_yet
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._from_start = from_start
        self._values: dict[Labels, int] = {}

    def add(self, labels: Labels, amount: int = 1) -> None:
        """Count."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def forget(self, profile_id: str) -> None:
        """Remove every series of a profile."""
        for labels in [labels for labels in self._values if labels[0] == profile_id]:
            del self._values[labels]

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in sorted((dict.fromkeys(self._from_start(), 0) | self._values).items()):
            family.add_metric(labels, value)
        yield family


class Histogram:
    """One series: counts by bucket, the sum, and the newest request of each bucket."""

    __slots__ = ("_bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.exemplars: list[tuple[int, float] | None] = [None] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, request_id: int | None = None) -> None:
        """Count a value, of that request."""
        bucket = bisect_left(self._bounds, value)
        self.counts[bucket] += 1
        self.sum += value
        if request_id is not None:
            self.exemplars[bucket] = (request_id, value)


class Histograms(Collector):
    """A histogram with labels. `awake` gives the label values that are shown; counts of others are kept.

    A histogram has many lines. One of a profile at rest would only repeat itself: it is left out, and comes back with
    what it had (see Rested). What reached no profile has those alone that it has a count in.
    """

    def __init__(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        awake: Callable[[], Collection[Labels]],
        labels: Sequence[str] = ("profile",),
    ) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(bounds)
        self._names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        self._awake = awake
        self._labels = tuple(labels)
        self._series: dict[Labels, Histogram] = {}
        self._rested: Rested[_Shown] = Rested()

    def observe(self, labels: Labels, value: float, request_id: int | None = None) -> None:
        """Count a value; OpenMetrics shows the newest request of each bucket as its exemplar."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Histogram(self._bounds)
        series.observe(value, request_id)

    def observed(self) -> Collection[Labels]:
        """The label values that have a count, shown or not."""
        return list(self._series)

    def forget(self, profile_id: str) -> None:
        """Remove every series of a profile."""
        for labels in [labels for labels in self._series if labels[0] == profile_id]:
            del self._series[labels]
        self._rested.forget(profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        unused = Histogram(self._bounds)
        now: dict[Labels, _Shown] = {}
        for labels in sorted(self._awake()):
            series = self._series.get(labels, unused)
            if series is not unused or labels[0]:
                # The sum first: it is then of no more values than the counts, and never runs ahead of them.
                now[labels] = (series.sum, list(series.counts), list(series.exemplars))
        for labels, (total, counts, exemplars) in self._rested.shown(now).items():
            buckets = zip(self._names, accumulate(counts), exemplars, strict=True)
            family.add_metric(labels, [_bucket(*bucket) for bucket in buckets], total)
        yield family


def _bucket(
    bound: str, count: int, newest: tuple[int, float] | None
) -> tuple[str, float] | tuple[str, float, Exemplar]:
    if newest is None:
        return bound, count
    return bound, count, Exemplar({"request_id": id_text(newest[0])}, newest[1])
