"""The series that are counted as things happen: requests, tokens, waits, loads and states.

No label value comes from a client: `profile` is the id of a configured profile, or empty where a request reached none.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.instances.state import InstanceState, InstanceStateChanged
from app.metrics.awake import Awake
from app.metrics.kept import Counts, Histograms, none_yet
from app.metrics.rested import Labels
from app.profiles.catalog import ProfileDeleted
from app.proxy.endpoints import COMPUTING
from app.proxy.observer import RequestFinished
from app.speculative.acceptance import generation_rate

_NO_PROFILE = ""
_BY_PROFILE = ("profile",)

# A long prompt takes minutes before its first token, a request that wakes a profile waits for the load as well, and
# an agent's answer can run for half an hour: the usual web buckets end at ten seconds.
_DURATION_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
# From a cached prompt on a fast card (20 ms) to a cold start from a slow disk.
_FIRST_TOKEN_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120, 600)
# Most go through at once; others wait for a slot, and the longest for a load.
_QUEUE_BUCKETS = (0.005, 0.05, 0.25, 1, 5, 15, 60, 300)
# Speculation that pays often gives 20 to 60 %, so from 10 to 100 tokens/s a step is about a quarter: a profile that
# became slower than its baseline moves to another bucket.
_RATE_BUCKETS = (2, 5, 10, 12.5, 16, 20, 25, 32, 40, 50, 64, 80, 100, 125, 160, 200, 300, 500)
_PER_TOKEN_BUCKETS = (0.002, 0.005, 0.01, 0.0125, 0.02, 0.03125, 0.05, 0.1, 0.2, 0.5)
# A small model from the page cache takes a second, hundreds of GB from a disk half an hour.
_LOAD_BUCKETS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Instruments(Collector):
    """Subscribes to RequestFinished, InstanceStateChanged and ProfileDeleted; lives in a registry of its own.

    `profiles` gives the ids of all profiles: those have series from the start. Histograms, and the states in which an
    instance is not, are of the profiles that are `awake`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        profiles: Callable[[], Collection[str]] = tuple,
        awake: Awake | None = None,
    ) -> None:
        self._profiles = profiles
        self._awake = awake or Awake()
        self._kept: list[Counts | Histograms] = []

        def by_profile() -> Collection[Labels]:
            return [(profile_id,) for profile_id in profiles()]

        def counts(name: str, text: str, labels: Sequence[str], start: Callable[[], Collection[Labels]]) -> Counts:
            kept = Counts(f"paceline_{name}", text, labels, start)
            self._kept.append(kept)
            return kept

        def histograms(name: str, text: str, bounds: Sequence[float]) -> Histograms:
            kept = Histograms(f"paceline_{name}", text, bounds, self._awake.labels)
            self._kept.append(kept)
            return kept

        self._requests = counts("requests", "Requests that have ended.", ("profile", "endpoint", "outcome"), none_yet)
        self._prompt_tokens = counts(
            "request_prompt_tokens", "Prompt tokens, cached ones included.", _BY_PROFILE, by_profile
        )
        self._cached_tokens = counts(
            "request_cached_tokens", "Prompt tokens found in the cache.", _BY_PROFILE, by_profile
        )
        self._generated_tokens = counts("request_generated_tokens", "Tokens generated.", _BY_PROFILE, by_profile)
        self._duration = histograms(
            "request_duration_seconds", "From the arrival of a request that computes to its end.", _DURATION_BUCKETS
        )
        self._queue = histograms(
            "request_queue_seconds",
            "From the arrival of a request that computes to its sending to the engine, or to its end without that.",
            _QUEUE_BUCKETS,
        )
        self._first_token = histograms(
            "request_time_to_first_token_seconds",
            "From the arrival of a request that its engine answers as a stream, which may be put together for the "
            "client, to its first output.",
            _FIRST_TOKEN_BUCKETS,
        )
        self._per_token = histograms(
            "request_time_per_output_token_seconds",
            "Mean time of each token after the first, from the engine's counts.",
            _PER_TOKEN_BUCKETS,
        )
        self._rate = histograms(
            "request_generation_tokens_per_second",
            "Tokens after the first / their time, from the engine's counts.",
            _RATE_BUCKETS,
        )
        self._load = histograms("instance_load_seconds", "How long instances took to get ready.", _LOAD_BUCKETS)
        self._states: dict[str, tuple[int, InstanceState]] = {}
        self._last_load: dict[str, float] = {}
        for kept in self._kept:
            registry.register(kept)
        registry.register(self)

    def on_request_finished(self, event: RequestFinished) -> None:
        """Count one request. What was not reported is not observed."""
        profile_id = _NO_PROFILE if event.profile_id is None else event.profile_id
        labels, report, request_id = (profile_id,), event.report, event.request_id
        self._awake.touch(profile_id)
        self._requests.add((profile_id, event.endpoint, event.outcome))
        if event.endpoint in COMPUTING:
            self._duration.observe(labels, event.duration_us / 1e6, request_id)
            self._queue.observe(labels, event.queue_us / 1e6, request_id)
        if event.time_to_first_token_us is not None:
            self._first_token.observe(labels, event.time_to_first_token_us / 1e6, request_id)
        if report.prompt_tokens is not None:
            self._prompt_tokens.add(labels, report.prompt_tokens)
        if report.cached_tokens is not None:
            self._cached_tokens.add(labels, report.cached_tokens)
        if report.generated_tokens is not None:
            self._generated_tokens.add(labels, report.generated_tokens)
            rate = generation_rate(report.generated_tokens, (report.generation_us or 0) / 1e6)
            if rate is not None:
                self._rate.observe(labels, rate, request_id)
                self._per_token.observe(labels, 1 / rate, request_id)

    def on_instance_state_changed(self, event: InstanceStateChanged) -> None:
        """Show the state of a profile's newest instance; the end of an older one changes nothing."""
        newest, _ = self._states.get(event.profile_id, (0, None))
        if event.instance_id < newest:
            return
        self._awake.on_instance_state(event)
        self._states[event.profile_id] = (event.instance_id, event.state)
        if event.load_seconds is not None and event.state is InstanceState.READY:
            self._load.observe((event.profile_id,), event.load_seconds)
            self._last_load[event.profile_id] = event.load_seconds

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        self.forget(event.profile_id)

    def forget(self, profile_id: str) -> None:
        """Remove every series of a profile."""
        self._awake.forget(profile_id)
        self._states.pop(profile_id, None)
        self._last_load.pop(profile_id, None)
        for kept in self._kept:
            kept.forget(profile_id)

    def collect(self) -> Iterable[Metric]:
        """The states of this moment. A profile that was not started yet is stopped."""
        state = GaugeMetricFamily(
            "paceline_instance_state",
            "1 for the state of the newest instance of a profile; 0 for the others, where the profile is not at rest.",
            labels=("profile", "state"),
        )
        last_load = GaugeMetricFamily(
            "paceline_instance_last_load_seconds",
            "How long the newest instance to get ready took.",
            labels=_BY_PROFILE,
        )
        never = dict.fromkeys(self._profiles(), (0, InstanceState.STOPPED))
        awake = self._awake.profiles()
        for profile_id, (_, now) in sorted((never | self._states).items()):
            for each in InstanceState if profile_id in awake else (now,):
                state.add_metric((profile_id, each), each is now)
        for profile_id, seconds in sorted(self._last_load.items()):
            last_load.add_metric((profile_id,), seconds)
        yield from (state, last_load)
