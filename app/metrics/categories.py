"""What single responses told of their drafts and their speed, by the kind of work that was asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from app.llama_server.timings import EngineReport
from app.metrics.awake import Awake
from app.metrics.rested import Labels, Rested
from app.profiles.catalog import ProfileDeleted
from app.proxy.categories import Category
from app.proxy.observer import RequestFinished
from app.speculative.acceptance import generation_rate

_LABELS: Final = ("profile", "method", "category")


@dataclass(frozen=True, slots=True)
class _Told:
    """The sums of one profile, method and category. Replaced as a whole: a scrape reads them from its own thread.

    Counts of drafts are None until a response told of any.
    """

    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    timed_tokens: int | None = None
    generation_seconds: float | None = None

    def plus(self, report: EngineReport) -> "_Told":
        draft_tokens, accepted_tokens = self.draft_tokens, self.accepted_tokens
        if report.draft_tokens is not None and report.accepted_tokens is not None:
            draft_tokens = (draft_tokens or 0) + report.draft_tokens
            accepted_tokens = (accepted_tokens or 0) + report.accepted_tokens
        timed_tokens, seconds = self.timed_tokens, self.generation_seconds
        more_seconds = (report.generation_us or 0) / 1e6
        if report.generated_tokens is not None and generation_rate(report.generated_tokens, more_seconds) is not None:
            timed_tokens = (timed_tokens or 0) + report.generated_tokens - 1
            seconds = (seconds or 0.0) + more_seconds
        return _Told(draft_tokens, accepted_tokens, timed_tokens, seconds)


class CategoriesCollector(Collector):
    """Subscribes to RequestFinished and ProfileDeleted.

    Series come with the first response that tells of what they count, and are those of the profiles that are `awake`:
    others would repeat themselves, eight times over. What is of no category, as it went to the engine past our
    endpoints, is `other`.
    """

    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._told: dict[Labels, _Told] = {}
        self._rested: Rested[_Told] = Rested()

    def on_request_finished(self, event: RequestFinished) -> None:
        """Count what the response told; nothing where no engine answered."""
        if event.context is None:
            return
        key = (event.context.profile_id, event.context.method, event.category or Category.OTHER.value)
        known = self._told.get(key, _Told())
        if (told := known.plus(event.report)) != known:
            self._told[key] = told

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        for key in [key for key in self._told if key[0] == event.profile_id]:
            del self._told[key]
        self._rested.forget(event.profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        families = {
            name: CounterMetricFamily(f"paceline_request_{name}", text, labels=_LABELS)
            for name, text in (
                ("draft_tokens", "Tokens proposed by drafters, as single responses reported them."),
                ("accepted_tokens", "Draft tokens that the target kept, as single responses reported them."),
                ("timed_tokens", "Tokens after the first of each request, whose time the engine told."),
                ("generation_seconds", "The time of those tokens, from the engine's counts."),
            )
        }
        awake = self._awake.profiles()
        told = {key: sums for key, sums in dict(self._told).items() if key[0] in awake}
        for key, sums in sorted(self._rested.shown(told).items()):
            for name, family in families.items():
                if (value := getattr(sums, name)) is not None:
                    family.add_metric(key, value)
        yield from families.values()
