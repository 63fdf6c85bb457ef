"""The newest requests of some launch contexts; which way to them is short depends on how many there are.

To tune a profile makes hundreds of contexts. One question for each would be hundreds for every page, while streams wait
for what Python does between them.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, literal_column, select
from sqlmodel import Session, col

from app.telemetry.tables import LaunchContextRow, RequestRow

# So many runs of the index are quickly merged.
_FEW_CONTEXTS = 8
# So many rows are read by the index, and sorted, in a few milliseconds. Where there are more, they are so frequent that
# reading all rows from the newest on finds a page of them in less, at some 15 rows a microsecond.
_FEW_ROWS = 5000

# In SQLite's words: neither choose an index for this, nor an order.
_UNINDEXED_CONTEXT: ColumnElement[int] = literal_column("+request.context_id")
_UNORDERED_ID: ColumnElement[int] = literal_column("+request.id")


def newest_ids(
    session: Session,
    contexts: Select[Any],
    span: Sequence[ColumnElement[bool]],
    chosen: Sequence[ColumnElement[bool]],
    most: int,
) -> list[int]:
    """The ids of up to `most` requests, newest first, of these contexts (a question for ids of `launch_context`).

    `span` are conditions on ids, `chosen` what else is asked of the rows.
    """
    if not chosen:
        some = session.execute(contexts.limit(_FEW_CONTEXTS + 1)).scalars().all()
        if len(some) <= _FEW_CONTEXTS:
            return _merged(session, some, span, most)
    rows = select(col(RequestRow.id)).where(*span, *chosen).limit(most)
    if _are_few(session, contexts, span):
        return _ids(session, rows.where(col(RequestRow.context_id).in_(contexts)).order_by(_UNORDERED_ID.desc()))
    # Those that are not used any more may all be far behind the newest of all.
    is_theirs = col(RequestRow.id) <= _newest(session, contexts, span), _UNINDEXED_CONTEXT.in_(contexts)
    return _ids(session, rows.where(*is_theirs).order_by(col(RequestRow.id).desc()))


def _merged(session: Session, contexts: Sequence[int], span: Sequence[ColumnElement[bool]], most: int) -> list[int]:
    """Each context is a run of the index that is in order already, so merging them reads no more than it must."""
    rows = select(col(RequestRow.id)).where(*span).order_by(col(RequestRow.id).desc()).limit(most)
    of_each = (rows.where(col(RequestRow.context_id) == context) for context in contexts)
    runs: Iterable[Iterable[int]] = (_ids(session, statement) for statement in of_each)
    return list(islice(heapq.merge(*runs, reverse=True), most))


def _are_few(session: Session, contexts: Select[Any], span: Sequence[ColumnElement[bool]]) -> bool:
    some = select(literal(1)).where(col(RequestRow.context_id).in_(contexts), *span).limit(_FEW_ROWS + 1).subquery()
    return bool(session.execute(select(func.count() <= _FEW_ROWS).select_from(some)).scalar_one())


def _newest(session: Session, contexts: Select[Any], span: Sequence[ColumnElement[bool]]) -> int:
    """The id of the newest row of any of them; there is one."""
    is_theirs = col(RequestRow.context_id) == col(LaunchContextRow.id)
    of_one = select(func.max(col(RequestRow.id))).where(is_theirs, *span).correlate(LaunchContextRow)
    return int(session.execute(contexts.with_only_columns(func.max(of_one.scalar_subquery()))).scalar_one())


def _ids(session: Session, statement: Select[Any]) -> list[int]:
    return list(session.execute(statement).scalars())
