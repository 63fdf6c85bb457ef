"""Aggregates of recorded requests: counts, sums, and percentiles of what was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, case, func, select
from sqlmodel import Session, col

from app.identifiers import first_id_at, id_time
from app.speculative.acceptance import acceptance_rate
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.queries import HAS_RATE, QueryInvalid, RequestFilters, conditions, contexts_of
from app.telemetry.tables import LaunchContextRow, RequestRow

GroupKey = tuple[str | int | None, ...]

PERCENTILE_ROWS_MOST = 200_000
GROUPS_MOST = 10_000
_IDS_PER_HOUR = first_id_at(3_600_000)


@dataclass(frozen=True, slots=True)
class _Grouping:
    """`column` tells rows of one group from those of another; `shown` is what is read of its value."""

    column: Any
    shown: Callable[[Any], str | int] | None = None


_GROUPINGS: Mapping[str, _Grouping] = {
    "profile": _Grouping(col(LaunchContextRow.profile_id)),
    "revision": _Grouping(col(LaunchContextRow.revision)),
    "method": _Grouping(col(LaunchContextRow.method)),
    "engine_build": _Grouping(col(LaunchContextRow.engine_build)),
    "category": _Grouping(col(RequestRow.category_code), CATEGORIES.decode),
    # Ids begin with the time, so the hour is in them.
    "hour": _Grouping(
        col(RequestRow.id) // _IDS_PER_HOUR, lambda hour: f"{id_time(hour * _IDS_PER_HOUR):%Y-%m-%dT%H:%M:%SZ}"
    ),
}
_HAS_DRAFTS = col(RequestRow.draft_tokens).is_not(None) & col(RequestRow.accepted_tokens).is_not(None)
_SUMS: Mapping[str, Any] = {
    "prompt_tokens": func.sum(col(RequestRow.prompt_tokens)),
    "cached_tokens": func.sum(col(RequestRow.cached_tokens)),
    "generated_tokens": func.sum(col(RequestRow.generated_tokens)),
    "draft_tokens": func.sum(case((_HAS_DRAFTS, col(RequestRow.draft_tokens)))),
    "accepted_tokens": func.sum(case((_HAS_DRAFTS, col(RequestRow.accepted_tokens)))),
    "timed_tokens": func.sum(case((HAS_RATE, col(RequestRow.generated_tokens) - 1))),
    "timed_us": func.sum(case((HAS_RATE, col(RequestRow.generation_us)))),
}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles: each is a value that was measured."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class StatsRow:
    """One group. None: nothing in the group reported it.

    `group` maps each name of `group_by` to its value, None for requests that have none: they reached no profile, or do
    not compute and are of no category. An `hour` is its first moment, in RFC 3339 and UTC; requests belong to that in
    which they came. `acceptance_rate` comes from the sums over those requests that reported drafts;
    `generation_tokens_per_second_overall` is the sum of tokens after the first ÷ the sum of their seconds.
    """

    group: Mapping[str, str | int | None]
    requests: int
    outcomes: Mapping[str, int]
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    generation_tokens_per_second_overall: float | None
    generation_tokens_per_second: Percentiles | None
    time_to_first_token_seconds: Percentiles | None


@dataclass(slots=True)
class _Gathered:
    """What is summed up of one group."""

    outcomes: dict[str, int] = field(default_factory=dict)
    sums: list[int | None] = field(default_factory=lambda: [None] * len(_SUMS))
    rates: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)


def stats(session: Session, filters: RequestFilters, group_by: Sequence[str] = ("profile",)) -> list[StatsRow]:
    """One row for each group that has requests, in the order of their keys; without `group_by`, one for all.

    Counts and sums are those of every request that the filters leave. Percentiles are exact over the newest
    PERCENTILE_ROWS_MOST requests among them, which bounds memory and time. Raises QueryInvalid for unknown names in
    `group_by`, for an unknown outcome or category, and for more than GROUPS_MOST groups.
    """
    unknown = [name for name in group_by if name not in _GROUPINGS]
    if unknown:
        named = ", ".join(map(repr, unknown))
        raise QueryInvalid("group_by", f"{named} cannot be grouped by; {', '.join(_GROUPINGS)} can")
    names = list(dict.fromkeys(group_by))
    groups = _Groups([_GROUPINGS[name] for name in names])
    _add_sums(session, filters, groups)
    _add_measurements(session, filters, groups)
    ordered = sorted(groups.of_key.items(), key=lambda item: tuple((part is not None, part) for part in item[0]))
    return [_row(dict(zip(names, key, strict=True)), group) for key, group in ordered]


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of all values do not exceed; `ordered` ascends, and is not empty."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


class _Groups:
    """What is gathered, by the key that is shown."""

    def __init__(self, groupings: Sequence[_Grouping]) -> None:
        self.columns = [grouping.column for grouping in groupings]
        self._shown = [grouping.shown for grouping in groupings]
        self._of_values: dict[tuple[Any, ...], _Gathered] = {}
        self.of_key: dict[GroupKey, _Gathered] = {}

    def of(self, values: tuple[Any, ...]) -> _Gathered:
        """The group of what the columns hold. Raises QueryInvalid where that would be one too many."""
        group = self._of_values.get(values)
        if group is None:
            parts = zip(self._shown, values, strict=True)
            key = tuple(value if shown is None or value is None else shown(value) for shown, value in parts)
            group = self._of_values[values] = self.of_key.setdefault(key, _Gathered())
            if len(self.of_key) > GROUPS_MOST:
                raise QueryInvalid(
                    "group_by", f"over {GROUPS_MOST} groups: group by less, or restrict by `since` and `until`"
                )
        return group


def _add_sums(session: Session, filters: RequestFilters, groups: _Groups) -> None:
    outcome_code = col(RequestRow.outcome_code)
    statement = _rows(session, filters, outcome_code, func.count(), *_SUMS.values(), *groups.columns)
    for code, count, *rest in session.execute(statement.group_by(outcome_code, *groups.columns)):
        sums, values = rest[: len(_SUMS)], rest[len(_SUMS) :]
        group = groups.of(tuple(values))
        outcome = OUTCOMES.decode(code)
        group.outcomes[outcome] = group.outcomes.get(outcome, 0) + count
        group.sums = [_plus(known, more) for known, more in zip(group.sums, sums, strict=True)]


def _add_measurements(session: Session, filters: RequestFilters, groups: _Groups) -> None:
    rate = case((HAS_RATE, (col(RequestRow.generated_tokens) - 1) * 1e6 / col(RequestRow.generation_us)))
    statement = _rows(session, filters, rate, col(RequestRow.time_to_first_token_us), *groups.columns)
    newest = statement.order_by(col(RequestRow.id).desc()).limit(PERCENTILE_ROWS_MOST)
    for rate_here, first_token_us, *values in session.execute(newest):
        group = groups.of(tuple(values))
        if rate_here is not None:
            group.rates.append(rate_here)
        if first_token_us is not None:
            group.first_tokens.append(first_token_us / 1e6)


def _rows(session: Session, filters: RequestFilters, *columns: Any) -> Select[Any]:
    """These of the rows that the filters leave, each with what served it."""
    served_by = col(LaunchContextRow.id) == col(RequestRow.context_id)
    statement = select(*columns).select_from(RequestRow).outerjoin(LaunchContextRow, served_by)
    statement = statement.where(*conditions(filters))
    contexts = contexts_of(session, filters)
    return statement if contexts is None else statement.where(col(RequestRow.context_id).in_(contexts))


def _row(group: Mapping[str, str | int | None], gathered: _Gathered) -> StatsRow:
    sums = dict(zip(_SUMS, gathered.sums, strict=True))
    timed_us = sums["timed_us"]
    return StatsRow(
        group=group,
        requests=sum(gathered.outcomes.values()),
        outcomes=gathered.outcomes,
        prompt_tokens=sums["prompt_tokens"],
        cached_tokens=sums["cached_tokens"],
        generated_tokens=sums["generated_tokens"],
        draft_tokens=sums["draft_tokens"],
        accepted_tokens=sums["accepted_tokens"],
        acceptance_rate=acceptance_rate(sums["draft_tokens"], sums["accepted_tokens"]),
        generation_tokens_per_second_overall=(sums["timed_tokens"] or 0) * 1e6 / timed_us if timed_us else None,
        generation_tokens_per_second=_percentiles(gathered.rates),
        time_to_first_token_seconds=_percentiles(gathered.first_tokens),
    )


def _percentiles(values: Sequence[float]) -> Percentiles | None:
    if not values:
        return None
    ordered = sorted(values)
    return Percentiles(*(nearest_rank(ordered, percent) for percent in (50, 90, 99)))


def _plus(known: int | None, more: int | None) -> int | None:
    return known if more is None else more + (known or 0)
