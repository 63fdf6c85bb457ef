"""Requests with a rate, by what served them and what they asked for: from rows and from roll-ups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.speculative.speedup import Timed
from app.telemetry.cells import decode_measured
from app.telemetry.codes import CATEGORIES
from app.telemetry.queries import HAS_RATE, RequestFilters, contexts_of
from app.telemetry.rolled import cell_conditions, split
from app.telemetry.stats import rows_with_context
from app.telemetry.stats_groups import GroupKey, Groups
from app.telemetry.tables import LaunchContextRow, RequestRow, RollupRow

# Up to so many rows each is a block of its own; more are told apart by id.
SINGLE_ROWS_MOST = 20_000
_ROW_BLOCKS = 61

# A group, a launch context, and a category.
TimedKey = tuple[GroupKey, int, str | None]


def timed_requests(
    session: Session,
    filters: RequestFilters,
    names: Sequence[str],
    contexts: Sequence[int],
    *,
    single_rows_most: int = SINGLE_ROWS_MOST,
) -> Mapping[TimedKey, Timed]:
    """What these contexts served of what the filters leave, grouped by `names`. Exact, also where rows are gone."""
    allowed = contexts_of(session, filters)
    if allowed is not None:
        contexts = list(set(allowed).intersection(contexts))
    groups = Groups(names)
    found: dict[TimedKey, Timed] = {}
    answered = split(session, filters)
    served = col(RequestRow.context_id).in_(contexts)
    blocks = [_of_rows(session, [*part, served, HAS_RATE], groups, single_rows_most) for part in answered.rows]
    if answered.hours is not None:
        blocks.append(_of_cells(session, filters, answered.hours, contexts, groups))
    for context, code, block, values in (each for part in blocks for each in part):
        category = None if code is None else CATEGORIES.decode(code)
        found.setdefault((groups.key(values), context, category), Timed()).add(*block)
    return found


# Context, category, (requests, tokens, microseconds), and what the group's columns hold.
_Block = tuple[int, int | None, tuple[int, int, int], Sequence[Any]]


def _of_rows(session: Session, chosen: Sequence[Any], groups: Groups, single_rows_most: int) -> Iterator[_Block]:
    identifier = col(RequestRow.id)
    some = rows_with_context(chosen, identifier).limit(single_rows_most + 1).subquery()
    are_few = session.execute(select(func.count()).select_from(some)).scalar_one() <= single_rows_most
    told_apart = (col(RequestRow.context_id), col(RequestRow.category_code), *groups.row_columns)
    sums = (func.count(), func.sum(col(RequestRow.generated_tokens) - 1), func.sum(col(RequestRow.generation_us)))
    statement = rows_with_context(chosen, *sums, *told_apart)
    statement = statement.group_by(*told_apart, identifier if are_few else identifier % _ROW_BLOCKS)
    for requests, tokens, microseconds, context, code, *values in session.execute(statement):
        yield context, code, (requests, tokens, microseconds), values


def _of_cells(
    session: Session, filters: RequestFilters, hours: range, contexts: Sequence[int], groups: Groups
) -> Iterator[_Block]:
    row = RollupRow
    own = [col(each) for each in (row.context_id, row.category_code, row.histograms, row.timed_tokens, row.timed_us)]
    served_by = col(LaunchContextRow.id) == col(row.context_id)
    chosen = cell_conditions(session, filters, hours, by_days="hour" not in groups.names)
    statement = select(*own, *groups.cell_columns).select_from(row).join(LaunchContextRow, served_by)
    statement = statement.where(*chosen, col(row.context_id).in_(contexts), col(row.timed_us).is_not(None))
    for context, code, packed, tokens, microseconds, *values in session.execute(statement):
        measured = decode_measured(packed)
        whole = (sum(measured.rates.values()), tokens, microseconds)
        for block in measured.blocks.values() or [whole]:
            yield context, code, block, values
