"""The Prometheus series of requests and instances.

No label value comes from a client: `profile` is the id of a configured profile, or empty where a request reached none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.instances.state import InstanceState, InstanceStateChanged
from app.profiles.catalog import ProfileDeleted
from app.proxy.endpoints import COMPUTING
from app.proxy.observer import RequestFinished
from app.speculative.acceptance import generation_rate

_NO_PROFILE = ""

# A long prompt takes minutes before its first token, a request that wakes a profile waits for the load as well, and
# an agent's answer can run for half an hour: the usual web buckets end at ten seconds.
_DURATION_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
# From a cached prompt on a fast card (20 ms) to a cold start from a slow disk.
_FIRST_TOKEN_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600)
# Speculation that pays often gives 20 to 60 %, so from 10 to 100 tokens/s a step is about a quarter: a profile that
# became slower than its baseline moves to another bucket. Both lists are the same steps, read from either end.
_RATE_BUCKETS = (0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 16, 20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200, 300, 500, 1000)
_PER_TOKEN_BUCKETS = tuple(round(1 / rate, 6) for rate in reversed(_RATE_BUCKETS))
# A small model from the page cache takes a second, hundreds of GB from a disk half an hour.
_LOAD_BUCKETS = (0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1200, 1800, 3600)


@dataclass(slots=True)
class _ProfileSeries:
    """The children of one profile, looked up once: the look-up costs more than the counting."""

    duration: Histogram
    first_token: Histogram
    per_token: Histogram
    rate: Histogram
    prompt_tokens: Counter
    cached_tokens: Counter
    generated_tokens: Counter
    requests: dict[tuple[str, str], Counter] = field(default_factory=dict)
    drafts: dict[str, tuple[Counter, Counter]] = field(default_factory=dict)


class Instruments:
    """Subscribes to RequestFinished, InstanceStateChanged and ProfileDeleted; lives in a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"paceline_{name}", help_text, labels, registry=registry)

        def histogram(name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"paceline_{name}", help_text, ("profile",), buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests that have ended.", "profile", "endpoint", "outcome")
        self._duration = histogram(
            "request_duration_seconds", "From the arrival of a request that computes to its end.", _DURATION_BUCKETS
        )
        self._first_token = histogram(
            "request_time_to_first_token_seconds",
            "From the arrival of a streaming request to its first output.",
            _FIRST_TOKEN_BUCKETS,
        )
        self._per_token = histogram(
            "request_time_per_output_token_seconds",
            "Mean time of each token after the first, from the engine's counts.",
            _PER_TOKEN_BUCKETS,
        )
        self._rate = histogram(
            "request_generation_tokens_per_second",
            "Tokens after the first / their time, from the engine's counts.",
            _RATE_BUCKETS,
        )
        self._prompt_tokens = counter("request_prompt_tokens", "Prompt tokens, cached ones included.", "profile")
        self._cached_tokens = counter("request_cached_tokens", "Prompt tokens found in the cache.", "profile")
        self._generated_tokens = counter("request_generated_tokens", "Tokens generated.", "profile")
        self._draft_tokens = counter("request_draft_tokens", "Tokens proposed by drafters.", "profile", "method")
        self._accepted_tokens = counter(
            "request_accepted_tokens", "Draft tokens that the target kept.", "profile", "method"
        )
        self._state = Gauge(
            "paceline_instance_state",
            "1 for the state of the newest instance of a profile, 0 for the others.",
            ("profile", "state"),
            registry=registry,
        )
        self._load = histogram("instance_load_seconds", "How long instances took to get ready.", _LOAD_BUCKETS)
        self._last_load = Gauge(
            "paceline_instance_last_load_seconds",
            "How long the newest instance to get ready took.",
            ("profile",),
            registry=registry,
        )
        self._series: dict[str, _ProfileSeries] = {}
        self._newest_instance: dict[str, int] = {}

    def on_request_finished(self, event: RequestFinished) -> None:
        """Count one request. What was not reported is not observed."""
        series = self._series_of(_NO_PROFILE if event.profile_id is None else event.profile_id)
        self._count_of(series, event).inc()
        if event.endpoint in COMPUTING:
            series.duration.observe(event.duration_us / 1e6)
        if event.time_to_first_token_us is not None:
            series.first_token.observe(event.time_to_first_token_us / 1e6)
        report = event.report
        if report.prompt_tokens is not None:
            series.prompt_tokens.inc(report.prompt_tokens)
        if report.cached_tokens is not None:
            series.cached_tokens.inc(report.cached_tokens)
        if report.generated_tokens is not None:
            series.generated_tokens.inc(report.generated_tokens)
            rate = generation_rate(report.generated_tokens, (report.generation_us or 0) / 1e6)
            if rate is not None:
                series.rate.observe(rate)
                series.per_token.observe(1 / rate)
        if report.draft_tokens is not None and report.accepted_tokens is not None and event.context is not None:
            draft_tokens, accepted_tokens = self._drafts_of(series, event.context.profile_id, event.context.method)
            draft_tokens.inc(report.draft_tokens)
            accepted_tokens.inc(report.accepted_tokens)

    def on_instance_state_changed(self, event: InstanceStateChanged) -> None:
        """Show the state of a profile's newest instance; the end of an older one changes nothing."""
        if event.instance_id < self._newest_instance.get(event.profile_id, 0):
            return
        self._newest_instance[event.profile_id] = event.instance_id
        for state in InstanceState:
            self._state.labels(event.profile_id, state).set(state is event.state)
        if event.load_seconds is not None and event.state is InstanceState.READY:
            self._load.labels(event.profile_id).observe(event.load_seconds)
            self._last_load.labels(event.profile_id).set(event.load_seconds)

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        self.forget(event.profile_id)

    def forget(self, profile_id: str) -> None:
        """Remove every series of a profile."""
        for state in InstanceState:
            self._state.remove(profile_id, state)
        self._load.remove(profile_id)
        self._last_load.remove(profile_id)
        self._newest_instance.pop(profile_id, None)
        series = self._series.pop(profile_id, None)
        if series is None:
            return
        for endpoint, outcome in series.requests:
            self._requests.remove(profile_id, endpoint, outcome)
        for method in series.drafts:
            self._draft_tokens.remove(profile_id, method)
            self._accepted_tokens.remove(profile_id, method)
        for metric in self._by_profile().values():
            metric.remove(profile_id)

    def _by_profile(self) -> Mapping[str, Any]:
        return {
            "duration": self._duration,
            "first_token": self._first_token,
            "per_token": self._per_token,
            "rate": self._rate,
            "prompt_tokens": self._prompt_tokens,
            "cached_tokens": self._cached_tokens,
            "generated_tokens": self._generated_tokens,
        }

    def _series_of(self, profile_id: str) -> _ProfileSeries:
        series = self._series.get(profile_id)
        if series is None:
            children = {name: metric.labels(profile_id) for name, metric in self._by_profile().items()}
            series = self._series[profile_id] = _ProfileSeries(**children)
        return series

    def _count_of(self, series: _ProfileSeries, event: RequestFinished) -> Counter:
        key = (event.endpoint, event.outcome)
        count = series.requests.get(key)
        if count is None:
            count = series.requests[key] = self._requests.labels(event.profile_id or _NO_PROFILE, *key)
        return count

    def _drafts_of(self, series: _ProfileSeries, profile_id: str, method: str) -> tuple[Counter, Counter]:
        drafts = series.drafts.get(method)
        if drafts is None:
            drafts = series.drafts[method] = (
                self._draft_tokens.labels(profile_id, method),
                self._accepted_tokens.labels(profile_id, method),
            )
        return drafts
