"""What a key is: who shows it, what that permits, and what goes wrong with keys."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.errors import PacelineError


class KeyKind(StrEnum):
    """What a key permits: everything; or inference and `/health`; or `/metrics` and `/health`."""

    ADMIN = "admin"
    INFERENCE = "inference"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Key:
    """One key without its secret.

    `profiles` are the ids that requests may use, None for all. `created_at` is None for the key of the settings,
    `expires_at` for one that does not expire. `last_used_at` may be some minutes behind.
    """

    name: str
    kind: KeyKind
    profiles: frozenset[str] | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new key and the secret that opens; this is the only moment at which that is known."""

    key: Key
    secret: str = field(repr=False)


class KeyExists(PacelineError):
    """A key of that name exists already."""

    code = "key-exists"


class KeyNotFound(PacelineError):
    """No key has that name."""

    code = "key-not-found"


class KeyInvalid(PacelineError):
    """No such key can be made."""

    code = "key-invalid"


class KeyNeeded(PacelineError):
    """The key cannot go: without it the service would be open, or closed to everybody."""

    code = "key-needed"
