"""The newest requests with a rate of one launch context, summed up."""

from collections.abc import Mapping

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.speculative.speedup import Timed
from app.telemetry.codes import CATEGORIES
from app.telemetry.queries import HAS_RATE
from app.telemetry.tables import RequestRow


def newest_timed(
    session: Session, context: int, most: int, *, looked_most: int | None = None
) -> Mapping[str | None, Timed]:
    """By category; up to so many, among the newest `looked_most` of the context where that is given."""
    ids, chosen = col(RequestRow.id), [col(RequestRow.context_id) == context]
    if looked_most is not None:
        oldest = select(ids).where(*chosen).order_by(ids.desc()).offset(looked_most - 1).limit(1).scalar_subquery()
        chosen.append(ids >= func.coalesce(oldest, 0))
    newest = (
        select(col(RequestRow.category_code), col(RequestRow.generated_tokens), col(RequestRow.generation_us))
        .where(*chosen, HAS_RATE)
        .order_by(ids.desc())
        .limit(most)
        .subquery()
    )
    statement = select(
        newest.c.category_code, func.count(), func.sum(newest.c.generated_tokens - 1), func.sum(newest.c.generation_us)
    ).group_by(newest.c.category_code)
    found: dict[str | None, Timed] = {}
    for code, *sums in session.execute(statement):
        found.setdefault(None if code is None else CATEGORIES.decode(code), Timed()).add(*sums)
    return found
