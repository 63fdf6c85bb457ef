"""Keys: what a request shows, and whether it may do what it asks."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from app.errors import AccessDenied, SettingsInvalid
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Knows the hash of the admin key, or that none is configured (then everything is open).

    `open_paths` need no key.
    """

    admin_digest: bytes | None
    open_paths: frozenset[str] = frozenset()

    def admit(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Let a request pass, or raise AccessDenied (`status` 401). Any wrong key takes the same time."""
        if self.admin_digest is None or path in self.open_paths:
            return
        shown = shown_key(headers)
        if shown is None:
            raise AccessDenied("a key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`", status=401)
        if not hmac.compare_digest(_digest(shown), self.admin_digest):
            raise AccessDenied("the key is not known", status=401)


def gatekeeper(settings: Settings) -> Gatekeeper:
    """The gatekeeper for these settings.

    Raises SettingsInvalid where the service would be reachable beyond loopback without any key.
    """
    key = settings.read_admin_key()
    if key is None and not settings.listens_on_loopback and not settings.allow_unauthenticated:
        raise SettingsInvalid(
            f"PACELINE_HOST {settings.host} can be reached from other machines and no key is configured: "
            "set PACELINE_ADMIN_KEY or PACELINE_ADMIN_KEY_FILE, or PACELINE_ALLOW_UNAUTHENTICATED=true"
        )
    open_to_all = settings.listens_on_loopback or settings.metrics_public
    return Gatekeeper(
        admin_digest=_digest(key.encode()) if key is not None else None,
        open_paths=frozenset({"/health", "/metrics"}) if open_to_all else frozenset(),
    )


def shown_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key in `Authorization: Bearer` or `x-api-key`; header names are lower case, as ASGI has them."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            return value.strip()
    return None


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()
