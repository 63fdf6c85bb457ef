"""How well drafts were accepted, window by window: a histogram, because a mean hides that a task drafts badly."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from app.instances.windows import AcceptanceWindowClosed
from app.metrics.awake import Awake
from app.metrics.kept import Histograms
from app.metrics.rested import Labels
from app.profiles.catalog import ProfileDeleted

_BUCKETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Two counts that are each off by a step: a rate of so many drafted tokens is then off by 0.02 at most.
_STEPS_LEAST: Final = 100


class AcceptanceCollector(Collector):
    """Subscribes to AcceptanceWindowClosed and ProfileDeleted.

    `methods` gives the method of each profile that speculates. Windows whose counts are too coarse for a rate are left
    out (an engine rounds what it has counted from a million on); the counters have them.
    """

    def __init__(self, methods: Callable[[], Mapping[str, str]], awake: Awake) -> None:
        self._methods = methods
        self._awake = awake
        self._rates = Histograms(
            "paceline_spec_decode_acceptance_ratio",
            "Accepted of drafted tokens in each window of 15 seconds in which an engine drafted, 0 to 1.",
            _BUCKETS,
            self._shown,
            ("profile", "method"),
        )

    def on_window(self, event: AcceptanceWindowClosed) -> None:
        """Count the rate of a window."""
        counts = event.counts
        if not counts.draft_tokens or counts.accepted_tokens is None:
            return
        if counts.rounded_to > 1 and counts.draft_tokens < _STEPS_LEAST * counts.rounded_to:
            return
        labels = (event.context.profile_id, event.context.method)
        self._rates.observe(labels, min(counts.accepted_tokens / counts.draft_tokens, 1.0))

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        self._rates.forget(event.profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        return self._rates.collect()

    def _shown(self) -> Collection[Labels]:
        awake = self._awake.profiles()
        return {labels for labels in {*self._methods().items(), *self._rates.observed()} if labels[0] in awake}
