"""The gatekeeper: what a request shows, and whether it may do what it asks."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from app.access.key import Key, KeyKind
from app.access.key_book import KeyBook
from app.access.refusals import Refusal
from app.errors import AccessDenied, SettingsInvalid
from app.settings import Settings

_log = logging.getLogger(__name__)

_HEALTH = "/health"
_METRICS = "/metrics"
# Shorter ones that people think of can be guessed, however much the tries are slowed.
_CONFIGURED_LEAST_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Lets requests pass by the keys of the book; with no key in it everything is open. `open_paths` need none."""

    book: KeyBook
    open_paths: frozenset[str] = frozenset()

    def admit(self, path: str, headers: Iterable[tuple[bytes, bytes]], *, is_inference: bool) -> Key | None:
        """Let a request pass, or raise AccessDenied. Returns the key, None where none was needed.

        `status` is 401 where there is no key that counts, 403 where it does not permit this; `reason` is a Refusal.
        """
        if path in self.open_paths or self.book.is_empty:
            return None
        shown = shown_key(headers)
        if shown is None:
            raise AccessDenied(
                "a key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`",
                status=401,
                reason=Refusal.MISSING.value,
            )
        key = self.book.recognise(shown)
        if not _permits(key.kind, path, is_inference=is_inference):
            raise AccessDenied(
                f"the key {key.name!r} is for {key.kind.value} only: this takes "
                f"{'a key for inference' if is_inference else 'an admin key'}",
                status=403,
                reason=Refusal.NOT_PERMITTED.value,
                key=key.name,
            )
        return key


def gatekeeper(settings: Settings, book: KeyBook) -> Gatekeeper:
    """The gatekeeper for these settings."""
    open_to_all = settings.listens_on_loopback or settings.metrics_public
    return Gatekeeper(book, frozenset({_HEALTH, _METRICS}) if open_to_all else frozenset())


def _permits(kind: KeyKind, path: str, *, is_inference: bool) -> bool:
    if kind is KeyKind.ADMIN or path == _HEALTH:
        return True
    return is_inference if kind is KeyKind.INFERENCE else path == _METRICS


def demand_keys(settings: Settings, book: KeyBook) -> None:
    """Raise SettingsInvalid where the service would be reachable beyond loopback without any key."""
    configured = settings.read_admin_key()
    if configured is not None and len(configured) < _CONFIGURED_LEAST_CHARACTERS:
        _log.warning("the configured admin key is short enough to be guessed: `openssl rand -hex 32` makes a good one")
    if book.is_empty and not may_be_without_keys(settings):
        raise SettingsInvalid(
            f"PACELINE_HOST {settings.host} can be reached from other machines and there is no key: set "
            "PACELINE_ADMIN_KEY or PACELINE_ADMIN_KEY_FILE, or run `paceline keys make NAME --admin` while it listens "
            "on loopback, or set PACELINE_ALLOW_UNAUTHENTICATED=true"
        )


def may_be_without_keys(settings: Settings) -> bool:
    """Whether these settings let the service be open."""
    return settings.listens_on_loopback or settings.allow_unauthenticated


def shown_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key in `Authorization: Bearer` or `x-api-key`; header names are lower case, as ASGI has them."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            return value.strip()
    return None
