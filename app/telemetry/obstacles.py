"""What keeps rows of requests and of acceptance windows from being recorded, as findings."""

import logging
from collections.abc import Callable
from pathlib import Path

from app import findings
from app.findings import Finding, Fix

_log = logging.getLogger(__name__)

_SLOW_SECONDS = 1.0


class Obstacle:
    """What is in the way of rows at this moment. `rows` counts those that wait. Any thread may call."""

    def __init__(self, rows: Callable[[], int], path: Path | None) -> None:
        self._rows = rows
        self._path = path
        self._reason: str | None = None
        self._late_since: float | None = None
        self.tell: Callable[[Finding], None] = lambda _: None

    @property
    def finding(self) -> Finding | None:
        """None where nothing is in the way."""
        reason = self._reason
        return None if reason is None else not_recorded_yet(reason, self._rows(), self._path)

    def come(self, reason: str) -> None:
        """It is in the way now: said and told once."""
        is_new = self._reason is None
        self._reason = reason
        if is_new:
            found = not_recorded_yet(reason, self._rows(), self._path)
            _log.warning("%s", found.message)
            self.tell(found)

    def be_late(self, now: float) -> bool:
        """Rows are late; whether they have been for too long."""
        self._late_since = self._late_since or now
        return now - self._late_since > _SLOW_SECONDS

    def go(self) -> None:
        """Rows are being recorded."""
        self._late_since = self._reason = None


def not_recorded_yet(obstacle: str, rows: int, path: Path | None) -> Finding:
    """So many rows wait for the database; `path` is that of the spill file, None where there is none."""
    return findings.warning(
        "requests-not-recorded-yet",
        f"rows of finished requests are not in the database yet: {obstacle}",
        expected="rows in a moment",
        observed=f"{rows} rows wait",
        evidence="" if path is None else f"they are kept in {path}, and recorded when the database takes writes",
        fixes=(Fix("make room on the disk of PACELINE_DATA_DIR, or stop the program that holds the database"),),
    )


def unrecorded(rows: int) -> Finding:
    """So many rows are lost."""
    return findings.error(
        "requests-unrecorded",
        f"{rows} requests or acceptance windows of this run have no row, nor will have: the service's log says why",
        expected="a row of each",
        observed=f"{rows} without one",
        evidence="paceline_requests_unrecorded_total",
        overridable=True,
    )
