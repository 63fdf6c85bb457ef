"""Aggregates of recorded requests: counts, sums, and percentiles of what was measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlmodel import Session, col

from app.speculative.acceptance import acceptance_rate
from app.telemetry import histogram
from app.telemetry.cells import SUMS
from app.telemetry.provenance import Provenance, read_provenance
from app.telemetry.queries import HAS_RATE, QueryInvalid, RequestFilters, contexts_of
from app.telemetry.rolled import add_cells, split
from app.telemetry.stats_groups import GROUPINGS, Gathered, GroupKey, Groups, Ranked
from app.telemetry.tables import LaunchContextRow, RequestRow

PERCENTILE_ROWS_MOST = 200_000
_PERCENTS = (50, 90, 99)

_HAS_DRAFTS = col(RequestRow.draft_tokens).is_not(None) & col(RequestRow.accepted_tokens).is_not(None)
# In the order of SUMS.
_ROW_SUMS: Sequence[Any] = (
    func.sum(col(RequestRow.prompt_tokens)),
    func.sum(col(RequestRow.cached_tokens)),
    func.sum(col(RequestRow.generated_tokens)),
    func.sum(case((_HAS_DRAFTS, col(RequestRow.draft_tokens)))),
    func.sum(case((_HAS_DRAFTS, col(RequestRow.accepted_tokens)))),
    func.sum(case((HAS_RATE, col(RequestRow.generated_tokens) - 1))),
    func.sum(case((HAS_RATE, col(RequestRow.generation_us)))),
)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Nearest-rank percentiles: each is a value that was measured, or within `percentiles_relative_error` of one."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class StatsRow:
    """One group. None: nothing in the group reported it.

    `group` maps each name of `group_by` to its value, None for requests that have none: they reached no profile, or do
    not compute and are of no category. An `hour` is its first moment, in RFC 3339 and UTC; requests belong to that in
    which they came. `acceptance_rate` comes from the sums over those requests that reported drafts;
    `generation_tokens_per_second_overall` is the sum of tokens after the first ÷ the sum of their seconds. Counts, sums
    and rates are exact; percentiles are where `percentiles_relative_error` is 0, and are of the newest requests only
    where it is None.
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
    time_per_output_token_seconds: Percentiles | None
    queue_seconds: Percentiles | None
    percentiles_relative_error: float | None
    provenance: Provenance


def stats(
    session: Session,
    filters: RequestFilters,
    group_by: Sequence[str] = ("profile",),
    *,
    others: Iterable[GroupKey] = (),
    percentile_rows_most: int = PERCENTILE_ROWS_MOST,
) -> list[StatsRow]:
    """One row for each group that has requests, in the order of their keys; without `group_by`, one for all.

    `others` are groups that have a row in any case, since something else is known of them.

    Counts and sums are those of every request that the filters leave, also where its row is gone. Hours that are over
    are answered from roll-ups, unless their rows are few and all there. Percentiles of rows are those of the newest
    `percentile_rows_most` among them, which bounds memory and time. Raises QueryInvalid for unknown names in
    `group_by`, for an unknown outcome or category, and for more than GROUPS_MOST groups.
    """
    unknown = [name for name in group_by if name not in GROUPINGS]
    if unknown:
        named = ", ".join(map(repr, unknown))
        raise QueryInvalid("group_by", f"{named} cannot be grouped by; {', '.join(GROUPINGS)} can")
    names = list(dict.fromkeys(group_by))
    groups = Groups(names)
    answered = split(session, filters)
    if answered.hours is not None:
        add_cells(session, filters, answered.hours, groups)
    contexts = contexts_of(session, filters)
    is_whole = True
    for part in answered.rows:
        chosen = [*part] if contexts is None else [*part, col(RequestRow.context_id).in_(contexts)]
        requests = _add_sums(session, chosen, groups)
        _add_measurements(session, chosen, groups, percentile_rows_most)
        is_whole = is_whole and requests <= percentile_rows_most
    for key in others:
        groups.of_key.setdefault(key, Gathered())
    ordered = sorted(groups.of_key.items(), key=lambda item: tuple((part is not None, part) for part in item[0]))
    origins = read_provenance(session, (group.contexts for _, group in ordered))
    return [
        _row(dict(zip(names, key, strict=True)), group, origin, is_whole)
        for (key, group), origin in zip(ordered, origins, strict=True)
    ]


def nearest_rank(count: int, percent: int) -> int:
    """The rank, from 1 upwards, of the smallest of so many values that at least `percent` of them do not exceed."""
    return max(-(-count * percent // 100), 1)


def _add_sums(session: Session, chosen: Sequence[ColumnElement[bool]], groups: Groups) -> int:
    """How many requests they are."""
    requests = 0
    told_apart = (col(RequestRow.context_id), col(RequestRow.outcome_code))
    statement = rows_with_context(chosen, *told_apart, func.count(), *_ROW_SUMS, *groups.row_columns)
    for context, code, count, *rest in session.execute(statement.group_by(*told_apart, *groups.row_columns)):
        groups.of(tuple(rest[len(SUMS) :])).add(context, code, count, rest[: len(SUMS)])
        requests += count
    return requests


def _add_measurements(session: Session, chosen: Sequence[ColumnElement[bool]], groups: Groups, most: int) -> None:
    rate = case((HAS_RATE, (col(RequestRow.generated_tokens) - 1) * 1e6 / col(RequestRow.generation_us)))
    measured = (rate, col(RequestRow.time_to_first_token_us), col(RequestRow.queue_us))
    statement = rows_with_context(chosen, *measured, *groups.row_columns)
    newest = statement.order_by(col(RequestRow.id).desc()).limit(most)
    for rate_here, first_token_us, queue_us, *values in session.execute(newest):
        groups.of(tuple(values)).add_values((rate_here, first_token_us, queue_us))


def rows_with_context(chosen: Sequence[ColumnElement[bool]], *columns: Any) -> Select[Any]:
    """These of the rows that were chosen, each with what served it."""
    served_by = col(LaunchContextRow.id) == col(RequestRow.context_id)
    return select(*columns).select_from(RequestRow).outerjoin(LaunchContextRow, served_by).where(*chosen)


def _row(group: Mapping[str, str | int | None], gathered: Gathered, provenance: Provenance, is_whole: bool) -> StatsRow:
    sums = dict(zip(SUMS, gathered.sums, strict=True))
    timed_us = sums["timed_us"]
    rates = gathered.rates()
    error = histogram.RELATIVE_ERROR if gathered.has_cells else 0.0
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
        generation_tokens_per_second=_percentiles(*rates),
        time_to_first_token_seconds=_seconds(gathered.first_tokens()),
        time_per_output_token_seconds=_reciprocals(*rates),
        queue_seconds=_seconds(gathered.queues()),
        percentiles_relative_error=error if is_whole else None,
        provenance=provenance,
    )


def _seconds(microseconds: Ranked) -> Percentiles | None:
    count, of_rank = microseconds
    return _percentiles(count, lambda rank: of_rank(rank) / 1e6)


def _reciprocals(count: int, of_rank: Callable[[int], float]) -> Percentiles | None:
    """Of the values' reciprocals, which come in the opposite order."""
    return _percentiles(count, lambda rank: 1 / of_rank(count + 1 - rank))


def _percentiles(count: int, of_rank: Callable[[int], float]) -> Percentiles | None:
    return Percentiles(*(of_rank(nearest_rank(count, percent)) for percent in _PERCENTS)) if count else None
