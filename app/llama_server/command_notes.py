"""What is said of each part of a raw command line: understood, obsolete, decided by Paceline, refused. Values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class NoteKind(StrEnum):
    """What became of a part of a command line."""

    TRANSLATED = "translated"
    KEPT = "kept"
    IMPLIED = "implied"
    RENAMED = "renamed"
    CORRECTED = "corrected"
    REMOVED = "removed"
    UNEXPANDED = "unexpanded"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Note:
    """One part of a command line and what became of it.

    `said` is the part as it was written, quoted for a shell, with secrets left out; for IMPLIED the flag that was not
    written. `field` and `value` are what the profile now says, where it says something.

    TRANSLATED became that field; KEPT went to `extra_args`; IMPLIED is what the engine does where nothing is said;
    RENAMED has another name in today's engine, which refuses the old one; CORRECTED would not be taken as written;
    REMOVED is gone from the engine without a successor; UNEXPANDED is left for a shell; DROPPED is decided by Paceline;
    REFUSED is not allowed, not known or not readable.
    """

    kind: NoteKind
    said: str
    message: str
    field: str | None = None
    value: Any = None
