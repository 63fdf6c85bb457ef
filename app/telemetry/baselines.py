"""What was recorded of a target without speculation: the measure of launches of it that speculate."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session, col

from app.database import Database
from app.instances.evidence import Baseline
from app.launch.report import Launch
from app.profiles.stored import read_revision
from app.speculative.parameters import Method
from app.telemetry.queries import HAS_RATE
from app.telemetry.tables import LaunchContextRow, RequestRow

# The newest of each launch: enough for a steady rate, and bounded however much was recorded.
ROWS_MOST = 1000


class Baselines:
    """Finds the baseline of a launch in what `database` holds of finished requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, launch: Launch) -> Baseline | None:
        """The baseline with most generated tokens; None where the launch does not speculate, or none is recorded."""
        if not launch.profile.speculation.methods:
            return None
        return await asyncio.to_thread(self._find, launch)

    def _find(self, launch: Launch) -> Baseline | None:
        with self._database.read() as session:
            found = baselines(session, launch.profile.target.path, launch.engine.build, launch.resolved.device_set)
        return max(found, key=lambda baseline: baseline.generated_tokens, default=None)


def baselines(session: Session, target_path: str, engine_build: str, device_set: str) -> Sequence[Baseline]:
    """What each profile recorded of this target without speculation, on the same devices and build; by id.

    Earlier revisions of profiles count, also of one that speculates today, and profiles that were deleted. Only
    requests with a rate count: those with a second token, since the engine's clock starts with the first.
    """
    plain = select(LaunchContextRow).where(
        col(LaunchContextRow.method) == Method.NONE.value,
        col(LaunchContextRow.engine_build) == engine_build,
        col(LaunchContextRow.device_set) == device_set,
    )
    found: dict[str, Baseline] = {}
    for context in session.execute(plain.order_by(col(LaunchContextRow.profile_id))).scalars():
        if _is_plain(session, context, target_path):
            requests, tokens, microseconds = _newest(session, context)
            known = found.get(context.profile_id, Baseline(context.profile_id, 0, 0, 0.0))
            found[context.profile_id] = Baseline(
                context.profile_id,
                known.requests + requests,
                known.generated_tokens + tokens,
                known.generation_seconds + microseconds / 1e6,
            )
    return [baseline for baseline in found.values() if baseline.requests]


def _is_plain(session: Session, context: LaunchContextRow, target_path: str) -> bool:
    """Whether that revision had this target, and no method beside `none` (`also` can name some)."""
    if context.revision is None:
        return False
    stored = read_revision(session, context.profile_id, context.revision)
    document: Mapping[str, Any] = {} if stored is None else stored.document
    path = (document.get("target") or {}).get("path")
    also = (document.get("speculation") or {}).get("also")
    return path is not None and PurePosixPath(path) == PurePosixPath(target_path) and not also


def _newest(session: Session, context: LaunchContextRow) -> tuple[int, int, int]:
    """Requests, generated tokens and microseconds of the newest requests of one launch."""
    newest = (
        select(col(RequestRow.generated_tokens).label("tokens"), col(RequestRow.generation_us).label("microseconds"))
        .where(col(RequestRow.context_id) == context.id, HAS_RATE)
        .order_by(col(RequestRow.id).desc())
        .limit(ROWS_MOST)
        .subquery()
    )
    sums = select(func.count(), func.sum(newest.c.tokens), func.sum(newest.c.microseconds)).select_from(newest)
    requests, tokens, microseconds = session.execute(sums).one()
    return requests, tokens or 0, microseconds or 0
