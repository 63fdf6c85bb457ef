"""What was recorded of a target without speculation: the measure of launches of it that speculate."""

import asyncio
from collections.abc import Sequence
from pathlib import PurePosixPath

from sqlmodel import Session, col

from app.database import Database
from app.instances.diagnosis.speed import is_enough
from app.instances.evidence import Baseline
from app.launch.report import Launch
from app.profiles.profile import document_of
from app.speculative.speedup import Timed
from app.telemetry.newest_timed import newest_timed
from app.telemetry.queries import RequestFilters
from app.telemetry.recorded_launches import differing_parts, recorded_launches, settings_of
from app.telemetry.tables import LaunchContextRow
from app.telemetry.timed import timed_requests

# The newest of each launch: enough for a steady rate, and bounded however much was recorded.
ROWS_MOST = 1000


class Baselines:
    """Finds the baseline of a launch in what `database` holds of finished requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, launch: Launch) -> Baseline | None:
        """Of those that are enough the one whose settings differ in least, of equals the profile's own, else that with
        most generated tokens; None where the launch does not speculate, or none is recorded.
        """
        if not launch.profile.speculation.methods:
            return None
        return await asyncio.to_thread(self._find, launch)

    def _find(self, launch: Launch) -> Baseline | None:
        with self._database.read() as session:
            found = baselines(session, launch.profile.target.path, launch.engine.build, launch.resolved.device_set)

        settings = settings_of(document_of(launch.profile))

        def rank(found: tuple[Baseline, Sequence[bytes]]) -> tuple[bool, int, bool, int]:
            baseline, its = found
            is_own = baseline.profile_id == launch.profile.id
            return is_enough(baseline), -len(differing_parts(its, settings)), is_own, baseline.generated_tokens

        return max(found, key=rank, default=(None, ()))[0]


def baselines(
    session: Session, target_path: str, engine_build: str, device_set: str
) -> Sequence[tuple[Baseline, Sequence[bytes]]]:
    """What each profile recorded of this target without speculation, on the same devices and build, with each of its
    settings; by id.

    Earlier revisions of profiles count, also of one that speculates today, and profiles that were deleted. Only
    requests with a rate count: those with a second token, since the engine's clock starts with the first.
    """
    launches = recorded_launches(
        session, col(LaunchContextRow.engine_build) == engine_build, col(LaunchContextRow.device_set) == device_set
    )
    found: dict[tuple[str, Sequence[bytes]], Timed] = {}
    for launch in launches:
        if launch.is_plain and launch.target == PurePosixPath(target_path):
            key = (launch.profile_id, launch.settings)
            found.setdefault(key, Timed()).merge(_newest(session, launch.context_id))
    return [(_baseline(profile_id, timed), its) for (profile_id, its), timed in found.items() if timed.requests]


def _newest(session: Session, context: int) -> Timed:
    """Of the newest requests of one launch; of all that roll-ups know where their rows are gone."""
    newest = newest_timed(session, context, ROWS_MOST) or timed_requests(session, RequestFilters(), (), [context])
    together = Timed()
    for timed in newest.values():
        together.merge(timed)
    return together


def _baseline(profile_id: str, timed: Timed) -> Baseline:
    return Baseline(profile_id, timed.requests, timed.tokens + timed.requests, timed.microseconds / 1e6)
