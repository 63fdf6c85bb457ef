"""Groups of /stats: what tells one from another, and what is gathered of each, from rows and from roll-ups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import col

from app.identifiers import IDS_PER_HOUR, id_time
from app.telemetry import histogram
from app.telemetry.cells import SUMS, Histograms, added
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.histogram import Histogram
from app.telemetry.queries import QueryInvalid
from app.telemetry.tables import LaunchContextRow, RequestRow, RollupRow

GroupKey = tuple[str | int | None, ...]
# How many values there are, and what gives that of a rank, from 1 upwards.
Ranked = tuple[int, Callable[[int], float]]

GROUPS_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Grouping:
    """The column that tells apart rows, and that of cells; `shown` is what is read of their value."""

    of_rows: Any
    of_cells: Any
    shown: Callable[[Any], str | int] | None = None


def _of_context(column: Any) -> Grouping:
    return Grouping(col(column), col(column))


GROUPINGS: Mapping[str, Grouping] = {
    "profile": _of_context(LaunchContextRow.profile_id),
    "revision": _of_context(LaunchContextRow.revision),
    "method": _of_context(LaunchContextRow.method),
    "engine_build": _of_context(LaunchContextRow.engine_build),
    "argv_hash": _of_context(LaunchContextRow.argv_hash),
    "device_set": _of_context(LaunchContextRow.device_set),
    "category": Grouping(col(RequestRow.category_code), col(RollupRow.category_code), CATEGORIES.decode),
    # Ids begin with the time, so the hour is in them.
    "hour": Grouping(
        col(RequestRow.id) // IDS_PER_HOUR,
        col(RollupRow.first_hour),
        lambda hour: f"{id_time(hour * IDS_PER_HOUR):%Y-%m-%dT%H:%M:%SZ}",
    ),
}


@dataclass(slots=True)
class Gathered:
    """What is summed up of one group. `values` are of what a cell has histograms of, in the same order."""

    contexts: set[int] = field(default_factory=set)
    outcomes: dict[str, int] = field(default_factory=dict)
    sums: list[int | None] = field(default_factory=lambda: [None] * len(SUMS))
    values: tuple[list[float], list[float], list[float]] = field(default_factory=lambda: ([], [], []))
    histograms: Histograms = field(default_factory=lambda: Histograms({}, {}, {}))
    has_cells: bool = False

    def add(self, context: int | None, outcome_code: int, requests: int, sums: Sequence[int | None]) -> None:
        """Add requests of one context that had one outcome."""
        if context is not None:
            self.contexts.add(context)
        outcome = OUTCOMES.decode(outcome_code)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + requests
        self.sums = added(self.sums, sums)

    def add_values(self, values: Iterable[float | None]) -> None:
        """Add what was measured of one request."""
        for known, value in zip(self.values, values, strict=True):
            if value is not None:
                known.append(value)

    def add_histograms(self, histograms: Histograms) -> None:
        """Add those of a cell."""
        self.has_cells = True
        self.histograms.merge(histograms)

    def rates(self) -> Ranked:
        """Of generation tokens/s."""
        return self._ranked(self.values[0], self.histograms.rates)

    def first_tokens(self) -> Ranked:
        """Of microseconds to the first token."""
        return self._ranked(self.values[1], self.histograms.first_tokens)

    def queues(self) -> Ranked:
        """Of microseconds in the queue."""
        return self._ranked(self.values[2], self.histograms.queues)

    def _ranked(self, values: Sequence[float], counted: Histogram) -> Ranked:
        """How many values there are, and what gives that of a rank, from 1 upwards.

        Values that were measured, or within histogram.RELATIVE_ERROR of them where there are cells.
        """
        if not self.has_cells:
            ordered = sorted(values)
            return len(ordered), lambda rank: ordered[rank - 1]
        together = dict(counted)
        for value in values:
            histogram.add(together, value)
        return sum(together.values()), lambda rank: histogram.value_of_rank(together, rank)


class Groups:
    """What is gathered, by the key that is shown."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._groupings = [GROUPINGS[name] for name in names]
        self.row_columns = [grouping.of_rows for grouping in self._groupings]
        self.cell_columns = [grouping.of_cells for grouping in self._groupings]
        self._of_values: dict[tuple[Any, ...], Gathered] = {}
        self.of_key: dict[GroupKey, Gathered] = {}

    def of(self, values: tuple[Any, ...]) -> Gathered:
        """The group of what the columns hold. Raises QueryInvalid where that would be one too many."""
        group = self._of_values.get(values)
        if group is None:
            group = self._of_values[values] = self.of_key.setdefault(self.key(values), Gathered())
            if len(self.of_key) > GROUPS_MOST:
                raise QueryInvalid(
                    "group_by", f"over {GROUPS_MOST} groups: group by less, or restrict by `since` and `until`"
                )
        return group

    def key(self, values: Sequence[Any]) -> GroupKey:
        """What is shown of what the columns hold."""
        parts = zip(self._groupings, values, strict=True)
        return tuple(
            value if grouping.shown is None or value is None else grouping.shown(value) for grouping, value in parts
        )
