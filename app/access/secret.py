"""The secret of a key: `pl_ID_SECRET`. The id finds the key, the whole text opens.

The secret is 256 random bits, so a plain fast hash keeps it: there is nothing to guess that a slow one would slow down.
"""

import secrets
from hashlib import sha256

_PREFIX = "pl"
_ID_BYTES = 6
_SECRET_BYTES = 32


def new_secret() -> tuple[str, str]:
    """A new id, and the text that a client shows."""
    key_id = secrets.token_hex(_ID_BYTES)
    return key_id, f"{_PREFIX}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of(shown: bytes) -> bytes:
    """The id in what was shown; empty where there is none."""
    parts = shown.split(b"_", 2)
    return parts[1] if len(parts) == 3 else b""


def digest_of(shown: bytes) -> bytes:
    """What is kept of it: 32 bytes."""
    return sha256(shown).digest()
