"""Where the numbers of a group come from: figures of different origin are not the same thing measured twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlmodel import Session, col

from app.telemetry.tables import LaunchContextRow


@dataclass(frozen=True, slots=True)
class Provenance:
    """The profile revisions, argv hashes, engine builds and device sets that served a group, each in order.

    `mixed` names those of which there are several. Revisions of two profiles differ, whatever their numbers.
    """

    revision: Sequence[int]
    argv_hash: Sequence[str]
    engine_build: Sequence[str]
    device_set: Sequence[str]
    mixed: Sequence[str]


def read_provenance(session: Session, contexts: Iterable[Iterable[int]]) -> list[Provenance]:
    """That of each of these sets of launch contexts; those that no instance took have none."""
    served = select(LaunchContextRow).where(col(LaunchContextRow.revision).is_not(None))
    known = {row.id: row for row in session.execute(served).scalars()}
    return [_provenance(known, each) for each in contexts]


def _provenance(known: Mapping[int | None, LaunchContextRow], contexts: Iterable[int]) -> Provenance:
    rows = [known[context] for context in contexts if context in known]
    revisions = {(row.profile_id, row.revision) for row in rows if row.revision is not None}
    hashes = {row.argv_hash for row in rows if row.argv_hash is not None}
    builds = {row.engine_build for row in rows if row.engine_build is not None}
    devices = {row.device_set for row in rows if row.device_set is not None}
    sizes = {
        "revision": len(revisions), "argv_hash": len(hashes), "engine_build": len(builds), "device_set": len(devices),
    }  # fmt: skip
    return Provenance(
        sorted({revision for _, revision in revisions}),
        sorted(hashes),
        sorted(builds),
        sorted(devices),
        [name for name, size in sizes.items() if size > 1],
    )
