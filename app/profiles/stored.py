"""Profiles as they are kept: the values, and how they become rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlmodel import Session, col, select

from app.errors import ProfileInvalid
from app.profiles.profile import LaunchProfile, document_of, parse_profile
from app.profiles.tables import ProfileRevisionRow, ProfileRow

# The revision of a profile that is not kept as it is asked about; those that are kept begin at 1.
UNSTORED: Final = 0


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A profile as it stands. `managed_by` names the file that owns it, if one does.

    `created_at` (UTC) is when the profile was made, not its present revision.
    """

    profile: LaunchProfile
    revision: int
    managed_by: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ProfileRevision:
    """What a profile said at one revision: the document as it was written then, which may be of an older shape."""

    profile_id: str
    revision: int
    document: Mapping[str, Any]
    created_at: datetime


def text_of(profile: LaunchProfile) -> str:
    """The profile as JSON text, the same for the same content. Raises ProfileInvalid for what JSON cannot say."""
    try:
        # document_of would write null for a NaN, and something else for half a character.
        json.dumps(profile.serving.set_parameters, allow_nan=False, ensure_ascii=False).encode()
        text = json.dumps(document_of(profile), sort_keys=True, ensure_ascii=False)
        text.encode()
    except (ValueError, TypeError, RecursionError) as failure:
        message = f"holds what JSON cannot: {failure}"
        raise ProfileInvalid(
            f"the profile is not valid: serving.set_parameters: {message}",
            [{"field": "serving.set_parameters", "message": message}],
        ) from failure
    return text


def read_current(session: Session) -> tuple[list[StoredProfile], list[str]]:
    """Every profile that is not deleted, and what was wrong with those that no longer validate."""
    statement = (
        select(ProfileRow, ProfileRevisionRow.document)
        .join(ProfileRevisionRow, col(ProfileRevisionRow.profile_id) == col(ProfileRow.id))
        .where(
            col(ProfileRevisionRow.revision) == col(ProfileRow.revision),
            col(ProfileRow.deleted_at_milliseconds).is_(None),
        )
    )
    profiles, problems = [], []
    for row, document in session.exec(statement):
        try:
            profiles.append(_stored(row, parse_profile(json.loads(document))))
        except (ProfileInvalid, ValueError) as failure:
            problems.append(f'stored profile "{row.id}" is left out until it is written again: {failure}')
    return profiles, problems


def read_revisions(session: Session, profile_id: str) -> Sequence[ProfileRevision]:
    """All revisions of a profile, newest first, whether it is deleted or not; empty where there never was one."""
    statement = (
        select(ProfileRevisionRow)
        .where(col(ProfileRevisionRow.profile_id) == profile_id)
        .order_by(col(ProfileRevisionRow.revision).desc())
    )
    return [_revision(row) for row in session.exec(statement)]


def read_revision(session: Session, profile_id: str, revision: int) -> ProfileRevision | None:
    """One revision, or None."""
    row = session.get(ProfileRevisionRow, (profile_id, revision))
    return None if row is None else _revision(row)


def save(
    session: Session, profile: LaunchProfile, document: str, managed_by: str | None, now_milliseconds: int
) -> StoredProfile:
    """Add a revision. An id that was deleted before begins a new life and continues its numbering."""
    row = session.get(ProfileRow, profile.id)
    if row is None:
        row = ProfileRow(id=profile.id, revision=0, created_at_milliseconds=now_milliseconds)
    elif row.deleted_at_milliseconds is not None:
        row.created_at_milliseconds, row.deleted_at_milliseconds = now_milliseconds, None
    row.revision += 1
    row.managed_by = managed_by
    session.add(row)
    session.flush()  # without an ORM relationship nothing else puts the row before the revision that points at it
    session.add(
        ProfileRevisionRow(
            profile_id=profile.id, revision=row.revision, document=document, created_at_milliseconds=now_milliseconds
        )
    )
    return _stored(row, profile)


def change_owner(session: Session, profile_id: str, managed_by: str) -> None:
    """Another file declares the profile now, word for word."""
    row = session.get_one(ProfileRow, profile_id)
    row.managed_by = managed_by
    session.add(row)


def mark_deleted(session: Session, profile_id: str, now_milliseconds: int) -> None:
    """End the profile's life; its revisions stay."""
    row = session.get_one(ProfileRow, profile_id)
    row.deleted_at_milliseconds, row.managed_by = now_milliseconds, None
    session.add(row)


def _stored(row: ProfileRow, profile: LaunchProfile) -> StoredProfile:
    return StoredProfile(profile, row.revision, row.managed_by, _time(row.created_at_milliseconds))


def _revision(row: ProfileRevisionRow) -> ProfileRevision:
    return ProfileRevision(row.profile_id, row.revision, json.loads(row.document), _time(row.created_at_milliseconds))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
