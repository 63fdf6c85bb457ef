"""Aggregates of recorded requests: counts, sums, and percentiles of what was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, select
from sqlmodel import Session, col

from app.speculative.acceptance import acceptance_rate
from app.telemetry.codes import OUTCOMES
from app.telemetry.queries import HAS_RATE, QueryInvalid, RequestFilters, conditions, contexts_of
from app.telemetry.tables import LaunchContextRow, RequestRow

GroupKey = tuple[str | int | None, ...]

PERCENTILE_ROWS_MOST = 200_000

# Each way to group, as a function of what the request was served by (None: by nothing).
_GROUPINGS: Mapping[str, Callable[[LaunchContextRow | None], str | int | None]] = {
    "profile": lambda context: context.profile_id if context else None,
    "revision": lambda context: context.revision if context else None,
    "method": lambda context: context.method if context else None,
    "engine_build": lambda context: context.engine_build if context else None,
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

    `group` maps each name of `group_by` to its value, None for requests that reached no profile. `acceptance_rate`
    comes from the sums over those requests that reported drafts; `generation_tokens_per_second_overall` is the sum of
    tokens after the first ÷ the sum of their seconds.
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
    PERCENTILE_ROWS_MOST requests among them, which bounds memory and time. Raises QueryInvalid for an unknown group
    or outcome.
    """
    for name in group_by:
        if name not in _GROUPINGS:
            raise QueryInvalid("group_by", f"{name!r} cannot be grouped by; {', '.join(_GROUPINGS)} can")
    keys = _keys(session, group_by)
    gathered: dict[GroupKey, _Gathered] = {}
    _add_sums(session, filters, keys, gathered)
    _add_measurements(session, filters, keys, gathered)
    ordered = sorted(gathered.items(), key=lambda item: tuple((part is not None, part) for part in item[0]))
    return [_row(dict(zip(group_by, key, strict=True)), group) for key, group in ordered]


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of all values do not exceed; `ordered` ascends, and is not empty."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


def _keys(session: Session, group_by: Sequence[str]) -> Callable[[int | None], GroupKey]:
    """The group of a context's number."""
    contexts = {row.id: row for row in session.execute(select(LaunchContextRow)).scalars()}
    groupings = [_GROUPINGS[name] for name in group_by]

    def key(context_id: int | None) -> GroupKey:
        context = contexts.get(context_id)
        return tuple(grouping(context) for grouping in groupings)

    return key


def _add_sums(
    session: Session,
    filters: RequestFilters,
    keys: Callable[[int | None], GroupKey],
    gathered: dict[GroupKey, _Gathered],
) -> None:
    context_id, outcome_code = col(RequestRow.context_id), col(RequestRow.outcome_code)
    statement = select(context_id, outcome_code, func.count(), *_SUMS.values())
    for row in session.execute(_restricted(session, statement, filters).group_by(context_id, outcome_code)):
        context, code, count, *sums = row
        group = gathered.setdefault(keys(context), _Gathered())
        outcome = OUTCOMES.decode(code)
        group.outcomes[outcome] = group.outcomes.get(outcome, 0) + count
        group.sums = [_plus(known, more) for known, more in zip(group.sums, sums, strict=True)]


def _add_measurements(
    session: Session,
    filters: RequestFilters,
    keys: Callable[[int | None], GroupKey],
    gathered: dict[GroupKey, _Gathered],
) -> None:
    statement = select(
        col(RequestRow.context_id),
        case((HAS_RATE, (col(RequestRow.generated_tokens) - 1) * 1e6 / col(RequestRow.generation_us))),
        col(RequestRow.time_to_first_token_us),
    )
    newest = _restricted(session, statement, filters).order_by(col(RequestRow.id).desc()).limit(PERCENTILE_ROWS_MOST)
    for context, rate, first_token_us in session.execute(newest):
        group = gathered[keys(context)]
        if rate is not None:
            group.rates.append(rate)
        if first_token_us is not None:
            group.first_tokens.append(first_token_us / 1e6)


def _restricted(session: Session, statement: Any, filters: RequestFilters) -> Any:
    restricted = statement.where(*conditions(filters))
    contexts = contexts_of(session, filters)
    return restricted if contexts is None else restricted.where(col(RequestRow.context_id).in_(contexts))


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
