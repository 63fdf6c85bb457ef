"""What engines counted of their drafts, as series. One source: the engines' own counters, so all traffic is in them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.instances.windows import AcceptanceWindowClosed
from app.llama_server.counters import EngineCounters
from app.metrics.awake import Awake
from app.metrics.rested import Labels, Rested
from app.profiles.catalog import ProfileDeleted

_LABELS = ("profile", "method")
# Methods that draft from text propose dozens of tokens: more positions than anybody would draw, in series for each.
POSITIONS_MOST = 16


@dataclass(frozen=True, slots=True)
class _Counted:
    """The sums of one profile and method. Replaced as a whole: a scrape reads them from a thread of its own."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    by_position: tuple[int, ...] = ()

    def plus(self, counts: EngineCounters) -> "_Counted":
        more = (counts.accepted_by_position or ())[:POSITIONS_MOST]
        return _Counted(
            self.drafts + (counts.drafts or 0),
            self.draft_tokens + (counts.draft_tokens or 0),
            self.accepted_tokens + (counts.accepted_tokens or 0),
            tuple(known + new for known, new in zip_longest(self.by_position, more, fillvalue=0)),
        )


class SpeculationCollector(Collector):
    """Adds up acceptance windows, so its counters go on over the restarts of engines.

    `methods` gives the method of each profile that speculates: those have series from the start, by position from
    their first drafts and while they are `awake` (all are, unless it is given). `paused` says of each living instance
    that may draft whether it is not read. What single responses report is counted elsewhere, and never mixed with this.
    """

    def __init__(
        self,
        methods: Callable[[], Mapping[str, str]],
        awake: Awake | None = None,
        paused: Callable[[], Mapping[str, bool]] = dict,
    ) -> None:
        self._methods = methods
        self._awake = awake
        self._paused = paused
        self._counted: dict[Labels, _Counted] = {}
        self._rested: Rested[tuple[int, ...]] = Rested()

    def on_window(self, event: AcceptanceWindowClosed) -> None:
        """Count what an engine counted."""
        key = (event.context.profile_id, event.context.method)
        self._counted[key] = self._counted.get(key, _Counted()).plus(event.counts)

    def on_profile_deleted(self, event: ProfileDeleted) -> None:
        """A profile that is gone takes its series along."""
        for key in [key for key in self._counted if key[0] == event.profile_id]:
            del self._counted[key]
        self._rested.forget(event.profile_id)

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        families = {
            name: CounterMetricFamily(f"paceline_spec_decode_num_{name}", text, labels=_LABELS)
            for name, text in (
                ("drafts", "Drafts that targets verified, as the engines count them."),
                ("draft_tokens", "Tokens in those drafts."),
                ("accepted_tokens", "Tokens of those drafts that the targets kept."),
            )
        }
        positions = CounterMetricFamily(
            "paceline_spec_decode_num_accepted_tokens_per_pos",
            f"Accepted tokens by their position in the draft, the first {POSITIONS_MOST}.",
            labels=(*_LABELS, "position"),
        )
        unused: dict[Labels, _Counted] = {key: _Counted() for key in self._methods().items()}
        known = dict(sorted((unused | self._counted).items(), key=lambda item: item[0]))
        awake = {key[0] for key in known} if self._awake is None else self._awake.profiles()
        for key, counted in known.items():
            for name, family in families.items():
                family.add_metric(key, getattr(counted, name))
        by_position = {key: counted.by_position for key, counted in known.items() if key[0] in awake}
        for key, accepted in self._rested.shown(by_position).items():
            for position, count in enumerate(accepted):
                positions.add_metric((*key, str(position)), count)
        paused = GaugeMetricFamily(
            "paceline_spec_decode_paused",
            "1 where somebody else reads a living engine's counters, which are then not counted here; else 0.",
            labels=("profile",),
        )
        for profile_id, is_paused in sorted(self._paused().items()):
            paused.add_metric((profile_id,), is_paused)
        yield from (*families.values(), positions, paused)
