"""Measured bytes of earlier launches, kept for the plans of later ones."""

from sqlmodel import Session, select

from app.database import Database
from app.instances.evidence import MeasuredPlacement
from app.instances.measured import calibration_of
from app.instances.tables import CalibrationRow
from app.launch.report import Launch
from app.placement.calibration import Measured


class CalibrationBook:
    """Bytes by device and term, for each profile revision, engine build and set of devices."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def measured(self, profile_id: str, revision: int, engine_build: str, device_set: str) -> Measured:
        """What such a launch took; empty where none was measured. Reads the database."""
        query = select(CalibrationRow).where(
            CalibrationRow.profile_id == profile_id,
            CalibrationRow.revision == revision,
            CalibrationRow.engine_build == engine_build,
            CalibrationRow.device_set == device_set,
        )
        found: dict[str, dict[str, int]] = {}
        with self._database.read() as session:
            for row in session.exec(query):
                found.setdefault(row.device, {})[row.term] = row.used_bytes
        return found

    def store(self, launch: Launch, placement: MeasuredPlacement) -> None:
        """Keep what a launch took, soon; newer figures replace older ones."""
        rows = [
            CalibrationRow(
                profile_id=launch.profile.id,
                revision=launch.revision,
                engine_build=launch.engine.build,
                device_set=launch.resolved.device_set,
                device=device,
                term=term,
                used_bytes=used_bytes,
            )
            for device, terms in calibration_of(placement).items()
            for term, used_bytes in terms.items()
        ]
        if rows:
            self._database.submit(lambda session: _merge_all(session, rows), urgent=False)


def _merge_all(session: Session, rows: list[CalibrationRow]) -> None:
    for row in rows:
        session.merge(row)
