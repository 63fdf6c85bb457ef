"""What keeps requests from being recorded, as findings."""

from pathlib import Path

from app import findings
from app.findings import Finding, Fix


def not_recorded_yet(obstacle: str, rows: int, path: Path | None) -> Finding:
    """So many requests wait for the database; `path` is that of the spill file, None where there is none."""
    return findings.warning(
        "requests-not-recorded-yet",
        f"finished requests are not in the database yet: {obstacle}",
        expected="rows in a moment",
        observed=f"{rows} requests wait",
        evidence="" if path is None else f"they are kept in {path}, and recorded when the database takes writes",
        fixes=(Fix("make room on the disk of PACELINE_DATA_DIR, or stop the program that holds the database"),),
    )


def unrecorded(rows: int) -> Finding:
    """So many requests have no row."""
    return findings.error(
        "requests-unrecorded",
        f"{rows} requests of this run have no row, and will have none: the service's log says why",
        expected="a row of every request",
        observed=f"{rows} requests without one",
        evidence="paceline_requests_unrecorded_total",
        overridable=True,
    )
