"""What requests were served by, with what the profiles said then: target, settings, and speculation or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, select
from sqlmodel import Session, col

from app.profiles.stored import read_revision
from app.speculative.parameters import Method
from app.telemetry.tables import LaunchContextRow

# Parts of a profile by which a target is faster or slower, speculation aside.
PARTS: Final = ("placement", "context", "projector", "extra_args", "env")


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch context. `is_plain`: it ran without any speculation, so it can be a baseline of its target.

    `settings` is what `settings_of` makes of its profile.
    """

    context_id: int
    profile_id: str
    engine_build: str
    device_set: str
    target: PurePosixPath
    settings: Sequence[bytes]
    is_plain: bool


def settings_of(document: Mapping[str, Any]) -> Sequence[bytes]:
    """What a profile says in each of PARTS, such that equal is equal."""
    return tuple(msgspec.json.encode(document.get(part), order="deterministic") for part in PARTS)


def differing_parts(one: Sequence[bytes], other: Sequence[bytes]) -> list[str]:
    """The names of PARTS in which two settings are not the same."""
    return [part for part, its, others in zip(PARTS, one, other, strict=True) if its != others]


def recorded_launches(session: Session, *conditions: ColumnElement[bool]) -> Sequence[RecordedLaunch]:
    """The contexts under these conditions whose revision of a profile is known, in the order of their profiles.

    Earlier revisions count, also those of a profile that has changed since, and profiles that were deleted.
    """
    statement = select(LaunchContextRow).where(col(LaunchContextRow.revision).is_not(None), *conditions)
    rows = session.execute(statement.order_by(col(LaunchContextRow.profile_id), col(LaunchContextRow.id))).scalars()
    return [launch for row in rows if (launch := _launch(session, row)) is not None]


def _launch(session: Session, row: LaunchContextRow) -> RecordedLaunch | None:
    stored = None if row.revision is None else read_revision(session, row.profile_id, row.revision)
    document: Mapping[str, Any] = {} if stored is None else stored.document
    path = (document.get("target") or {}).get("path")
    if path is None or row.id is None or row.engine_build is None or row.device_set is None:
        return None
    # A revision without a method of its own can name others in `also`.
    is_plain = row.method == Method.NONE.value and not (document.get("speculation") or {}).get("also")
    return RecordedLaunch(
        row.id, row.profile_id, row.engine_build, row.device_set, PurePosixPath(path), settings_of(document), is_plain
    )
