"""The share of a question to /stats that roll-ups answer: whole hours, by days where those are whole too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlmodel import Session, col

from app.identifiers import IDS_PER_HOUR
from app.telemetry.cells import SUMS, decode_histograms
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.queries import RequestFilters, conditions, contexts_of, first_id_of
from app.telemetry.rollup import HOURS_PER_DAY, rollup_state
from app.telemetry.stats_groups import Groups
from app.telemetry.tables import LateRequestRow, LaunchContextRow, RequestRow, RollupRow

# So many rows are summed up themselves where they are there: their percentiles are exact, in a tenth of a second.
EXACT_ROWS_MOST = 50_000
_END_OF_IDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Split:
    """`hours` are answered by roll-ups, None where none are; `rows` has conditions for each part of the rest."""

    hours: range | None
    rows: Sequence[Sequence[ColumnElement[bool]]]


def split(session: Session, filters: RequestFilters) -> Split:
    """What roll-ups answer of a question, and what rows do.

    All by rows where there are few and none is gone. Where rows of an hour are gone of which `filters` want a part, it
    counts as a whole.
    """
    state = rollup_state(session)
    first_id = 0 if filters.since is None else first_id_of(filters.since)
    end_id = _END_OF_IDS if filters.until is None else first_id_of(filters.until)
    first_hour, is_part = divmod(first_id, IDS_PER_HOUR)
    if is_part and first_hour >= state.kept_hour:
        first_hour += 1
    end_hour, is_part = divmod(end_id, IDS_PER_HOUR)
    if is_part and end_hour < state.kept_hour:
        end_hour += 1
    hours = range(first_hour, max(min(end_hour, state.rolled_hour), first_hour))
    by_rows = Split(None, [conditions(filters)])
    if not hours or (first_hour >= state.kept_hour and _requests(session, filters, hours) <= EXACT_ROWS_MOST):
        return by_rows
    others = conditions(replace(filters, since=None, until=None))
    identifier = col(RequestRow.id)
    before, after = hours.start * IDS_PER_HOUR, hours.stop * IDS_PER_HOUR
    late = select(col(LateRequestRow.id)).where(col(LateRequestRow.id) >= before, col(LateRequestRow.id) < after)
    parts: list[Sequence[ColumnElement[bool]]] = [[*others, identifier.in_(late)]]
    if first_id < before:
        parts.append([*others, identifier >= first_id, identifier < before])
    if after < end_id:
        parts.append([*others, identifier >= after, *([identifier < end_id] if end_id < _END_OF_IDS else [])])
    return Split(hours, parts)


def add_cells(session: Session, filters: RequestFilters, hours: range, groups: Groups) -> None:
    """Gather from the roll-ups of these hours."""
    sums = [col(getattr(RollupRow, name)) for name in SUMS]
    own = [col(getattr(RollupRow, name)) for name in ("context_id", "outcome_code", "requests", "histograms")]
    served_by = col(LaunchContextRow.id) == col(RollupRow.context_id)
    statement = select(*own, *sums, *groups.cell_columns).select_from(RollupRow).outerjoin(LaunchContextRow, served_by)
    for context, code, requests, packed, *rest in session.execute(
        statement.where(*cell_conditions(session, filters, hours, by_days="hour" not in groups.names))
    ):
        group = groups.of(tuple(rest[len(SUMS) :]))
        group.add(context, code, requests, rest[: len(SUMS)])
        group.add_histograms(decode_histograms(packed))


def _requests(session: Session, filters: RequestFilters, hours: range) -> int:
    chosen = cell_conditions(session, filters, hours, by_days=True)
    return session.execute(select(func.sum(col(RollupRow.requests))).where(*chosen)).scalar() or 0


def cell_conditions(session: Session, filters: RequestFilters, hours: range, *, by_days: bool) -> list[Any]:
    """On cells, such that every hour counts once."""
    chosen: list[Any] = []
    if (contexts := contexts_of(session, filters)) is not None:
        chosen.append(col(RollupRow.context_id).in_(contexts))
    if filters.outcome is not None:
        chosen.append(col(RollupRow.outcome_code) == OUTCOMES.encode(filters.outcome))
    if filters.category is not None:
        chosen.append(col(RollupRow.category_code) == CATEGORIES.encode(filters.category))
    first_day = -(-hours.start // HOURS_PER_DAY) * HOURS_PER_DAY
    end_day = hours.stop // HOURS_PER_DAY * HOURS_PER_DAY
    if not by_days or first_day >= end_day:
        return [*chosen, _within(1, hours.start, hours.stop)]
    parts = (_within(1, hours.start, first_day), _within(HOURS_PER_DAY, first_day, end_day))
    return [*chosen, or_(*parts, _within(1, end_day, hours.stop))]


def _within(hours: int, first_hour: int, end_hour: int) -> ColumnElement[bool]:
    start = col(RollupRow.first_hour)
    return and_(col(RollupRow.hours) == hours, start >= first_hour, start < end_hour)
