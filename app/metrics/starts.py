"""How starts of instances came out, and how often profiles were started again."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from app.errors import EngineNotFound, EngineUnusable, PacelineError
from app.instances.diagnosis.ends import ENDS
from app.instances.facts import ProfileRestarted, RestartCause, StartNotBegun, StartRefused
from app.instances.state import InstanceState, InstanceStateChanged
from app.metrics.kept import Counts
from app.metrics.rested import Labels
from app.profiles.catalog import ProfileDeleted

OTHER: Final = "other"
_KILLED: Final = "killed-by-signal"
# What somebody who sees the counter grow has to look into. Rules that are in none of these are `other`.
RULE_CLASSES: Final[Mapping[str, Collection[str]]] = {
    "memory": ("device-memory", "fit-needs-context", "host-memory", "nothing-fits", "residency-refused"),
    "files": (
        *("target-unreadable", "draft-unreadable", "projector-unreadable", "projector-kind", "target-is-a-drafter"),
        *("adapter-kind", "adapter-mismatch", "adapter-tensor-mode", "adapter-unreadable"),
    ),
    "drafter": (
        *("draft-hidden-size", "draft-kind", "draft-missing", "draft-target-architecture", "draft-target-layers"),
        *("draft-tokenizer", "draft-tokens-zero", "draft-unused", "draft-vocabulary", "dspark-confidence"),
        *("method-unsupported", "mtp-absent", "mtp-heads"),
    ),
    "placement": (
        *("buffer-unknown", "device-repeated", "device-unknown", "devices-too-many", "draft-not-with-output"),
        *("draft-on-host", "expert-offload-not-moe", "expert-offload-range", "main-gpu-unknown", "split-shape"),
        *("tensor-mode-architecture", "tensor-mode-attention", "tensor-mode-draft"),
    ),
    "context": (
        *("batch-too-small", "cache-types-differ", "context-shift-k-type", "context-too-small"),
        *("quantised-v-needs-flash-attention", "slots-too-many", "ubatch-too-small"),
    ),
    "options": ("alias-taken", "env-reserved", "flag-reserved", "flag-unknown", "flag-value"),
    "machine": ("driver-silent", "engine-refuses", "rpc-held"),
}
# Why a start comes to no instance, where no rule forbids it.
OBSTACLES: Final = (EngineNotFound.code, EngineUnusable.code, "engine-not-started", PacelineError.code)
_CLASS_OF: Final = {rule: name for name, rules in RULE_CLASSES.items() for rule in rules}


class StartsCollector(Collector):
    """Subscribes to InstanceStateChanged, StartRefused, StartNotBegun, ProfileRestarted and ProfileDeleted.

    A start is `ready`, `refused` (with the class of the first rule that said so), `not-begun` (it came to no instance,
    with what was in the way) or `failed` (with the reason of its end). One that is stopped before it was ready is none
    of them. `profiles` gives the ids of all profiles.
    """

    def __init__(self, profiles: Callable[[], Collection[str]]) -> None:
        def from_start() -> Collection[Labels]:
            return [(profile_id, "ready", "") for profile_id in profiles()]

        def causes() -> Collection[Labels]:
            return [(profile_id, RestartCause.FAILURE) for profile_id in profiles()]

        self._starts = Counts(
            "paceline_instance_starts",
            "Starts that came to an end: ready; refused by a class of rules; not-begun, or failed, for a reason.",
            ("profile", "result", "reason"),
            from_start,
        )
        self._restarts = Counts(
            "paceline_instance_restarts",
            "Instances that followed another of their profile: after its failure, because somebody asked, as fallback.",
            ("profile", "cause"),
            causes,
        )
        self._ready: set[int] = set()

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """A load has come out. Who was ready, and fails later, had started well."""
        if event.state is InstanceState.READY:
            self._ready.add(event.instance_id)
            self._starts.add((event.profile_id, "ready", ""))
        elif event.state is InstanceState.FAILED and event.instance_id not in self._ready:
            self._starts.add((event.profile_id, "failed", reason_of(event.reason)))
        if event.state.is_terminal:
            self._ready.discard(event.instance_id)

    def on_refused(self, event: StartRefused) -> None:
        """A check has refused a start."""
        self._starts.add((event.profile_id, "refused", _CLASS_OF.get(event.rule, OTHER)))

    def on_not_begun(self, event: StartNotBegun) -> None:
        """Something that is no rule was in the way."""
        self._starts.add((event.profile_id, "not-begun", event.reason if event.reason in OBSTACLES else OTHER))

    def on_restarted(self, event: ProfileRestarted) -> None:
        """An instance has followed another."""
        self._restarts.add((event.profile_id, event.cause))

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        self._starts.forget(event.profile_id)
        self._restarts.forget(event.profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield from self._starts.collect()
        yield from self._restarts.collect()


def reason_of(reason: str | None) -> str:
    """The reason of an end as a label: one of `ENDS`, the signals as one, and `other`."""
    if reason is None or reason in ENDS:
        return reason or OTHER
    return _KILLED if reason.startswith(_KILLED) else OTHER
