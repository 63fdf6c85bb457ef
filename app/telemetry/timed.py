"""Requests with a rate, by what served them and what they asked for: from rows and from roll-ups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, literal, select
from sqlmodel import Session, col

from app.identifiers import IDS_PER_HOUR
from app.speculative.speedup import Timed
from app.telemetry.cells import IDS_PER_BLOCK, decode_measured
from app.telemetry.codes import CATEGORIES
from app.telemetry.queries import HAS_RATE, RequestFilters, contexts_of
from app.telemetry.rolled import cell_conditions, split
from app.telemetry.stats import rows_with_context
from app.telemetry.stats_groups import GroupKey, Groups
from app.telemetry.tables import LaunchContextRow, RequestRow, RollupRow

# Up to so many rows each is a block of its own; more are put together to so many for each key.
SINGLE_ROWS_MOST = 20_000
_ROW_BLOCKS = 60
# Up to so many cells of hours are read, in a fraction of a second; where there are more, days are.
_HOURS_MOST = 20_000

# A group, a launch context, and a category.
TimedKey = tuple[GroupKey, int, str | None]


def timed_requests(
    session: Session,
    filters: RequestFilters,
    names: Sequence[str],
    contexts: Sequence[int],
    *,
    single_rows_most: int = SINGLE_ROWS_MOST,
    with_blocks: bool = True,
) -> Mapping[TimedKey, Timed]:
    """What these contexts served of what the filters leave, grouped by `names`. Exact, also where rows are gone.

    Without blocks, which are then as few as may be, it is cheaper.
    """
    allowed = contexts_of(session, filters)
    if allowed is not None:
        contexts = list(set(allowed).intersection(contexts))
    groups = Groups(names)
    found: dict[TimedKey, Timed] = {}
    answered = split(session, filters)
    served = col(RequestRow.context_id).in_(contexts)
    blocks = [
        block
        for part in answered.rows
        for block in _of_rows(session, [*part, served, HAS_RATE], groups, single_rows_most if with_blocks else None)
    ]
    if answered.hours is not None:
        blocks.extend(_of_cells(session, filters, answered.hours, contexts, groups, with_blocks=with_blocks))
    for _, key, block in sorted(blocks, key=lambda each: each[0]):
        found.setdefault(key, Timed()).add(*block)
    return found


# The first id of it, what it is of, and (requests, tokens, microseconds).
_Block = tuple[int, TimedKey, tuple[int, int, int]]


def _of_rows(session: Session, chosen: Sequence[Any], groups: Groups, singles: int | None) -> Iterator[_Block]:
    """Up to so many rows by themselves; None puts all of a key together."""
    identifier, told_apart = col(RequestRow.id), (col(RequestRow.context_id), col(RequestRow.category_code))
    number: Any = literal(0)
    if singles is not None:
        some = rows_with_context(chosen, identifier).limit(singles + 1).subquery()
        are_few = session.execute(select(func.count()).select_from(some)).scalar_one() <= singles
        parts = func.ntile(_ROW_BLOCKS).over(partition_by=(*told_apart, *groups.row_columns), order_by=identifier)
        number = identifier if are_few else parts
    columns = [column.label(f"column_{number}") for number, column in enumerate((*told_apart, *groups.row_columns))]
    tokens = col(RequestRow.generated_tokens) - 1
    rows = rows_with_context(
        chosen, identifier, *columns, tokens.label("tokens"), col(RequestRow.generation_us).label("microseconds"),
        number.label("number"),
    ).subquery()  # fmt: skip
    keys = [rows.c[column.name] for column in columns]
    sums = (func.min(rows.c.id), func.count(), func.sum(rows.c.tokens), func.sum(rows.c.microseconds))
    for first_id, requests, timed, microseconds, context, code, *values in session.execute(
        select(*sums, *keys).group_by(*keys, rows.c.number)
    ):
        yield first_id, _key(groups, values, context, code), (requests, timed, microseconds)


def _of_cells(
    session: Session,
    filters: RequestFilters,
    hours: range,
    contexts: Sequence[int],
    groups: Groups,
    *,
    with_blocks: bool,
) -> Iterator[_Block]:
    names = ("first_hour", "context_id", "category_code", "histograms", "timed_tokens", "timed_us")
    own = [col(getattr(RollupRow, name)) for name in names]
    served_by = col(LaunchContextRow.id) == col(RollupRow.context_id)
    is_of = (col(RollupRow.context_id).in_(contexts), col(RollupRow.timed_us).is_not(None))
    by_hours = [*cell_conditions(session, filters, hours, by_days=False), *is_of]
    chosen = by_hours
    if "hour" not in groups.names:
        some = select(literal(1)).select_from(RollupRow).where(*by_hours).limit(_HOURS_MOST + 1).subquery()
        if not with_blocks or session.execute(select(func.count()).select_from(some)).scalar_one() > _HOURS_MOST:
            chosen = [*cell_conditions(session, filters, hours, by_days=True), *is_of]
    statement = select(*own, *groups.cell_columns).select_from(RollupRow).join(LaunchContextRow, served_by)
    for hour, context, code, packed, tokens, microseconds, *values in session.execute(statement.where(*chosen)):
        measured, key = decode_measured(packed), _key(groups, values, context, code)
        for number, block in measured.blocks.items():
            yield number * IDS_PER_BLOCK, key, block
        if not measured.blocks:
            yield hour * IDS_PER_HOUR, key, (sum(measured.rates.values()), tokens, microseconds)


def _key(groups: Groups, values: Sequence[Any], context: int, code: int | None) -> TimedKey:
    return groups.key(values), context, None if code is None else CATEGORIES.decode(code)
