"""KeyBook: the one owner of keys. What it knows in memory is what the database holds."""

import asyncio
import contextlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.access.key import Key, KeyExists, KeyInvalid, KeyKind, KeyNeeded, KeyNotFound, MadeKey
from app.access.refusals import Refusal
from app.access.secret import digest_of, id_of, new_secret
from app.access.stored_keys import StoredKey, add_key, note_use, read_keys, remove_key
from app.database import Database
from app.errors import AccessDenied, DatabaseUnavailable
from app.near_names import near_names

_log = logging.getLogger(__name__)

CONFIGURED = Key("configured", KeyKind.ADMIN)
CONFIGURED_METRICS = Key("configured-metrics", KeyKind.METRICS)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# The time of last use is for people who tidy up: a write for each request would buy them nothing.
_USE_STEP_SECONDS = 300.0
_NOBODY = bytes(32)


class KeyBook:
    """Keys by name, and by what a client shows. `load` first.

    `configured` is the admin key of the settings, `metrics` their key for metrics, which counts only beside another.
    `may_be_empty` says whether the service may run without any key.
    Writes are one after another, each in the database before it counts. `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        *,
        configured: str | None,
        metrics: str | None = None,
        may_be_empty: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        given = ((CONFIGURED, configured), (CONFIGURED_METRICS, metrics))
        self._configured = {key: digest_of(text.encode()) for key, text in given if text is not None}
        self._may_be_empty = may_be_empty
        self._clock = clock
        self._writing = asyncio.Lock()
        self._by_id: dict[bytes, StoredKey] = {}

    def load(self) -> None:
        """Read every key."""
        with self._database.read() as session:
            self._by_id = {stored.key_id.encode(): stored for stored in read_keys(session)}

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all. One that has expired is one: it must not open the service by that."""
        return CONFIGURED not in self._configured and not self._by_id

    def list(self) -> Sequence[Key]:
        """Every key, by name; those of the settings first."""
        return [*self._configured, *sorted((stored.key for stored in self._by_id.values()), key=lambda key: key.name)]

    def recognise(self, shown: bytes) -> Key:
        """The key that opens with this. Raises AccessDenied (401), for every wrong one after the same work."""
        digest = digest_of(shown)
        for configured, expected in self._configured.items():
            if hmac.compare_digest(digest, expected):
                return configured
        stored = self._by_id.get(id_of(shown))
        if not hmac.compare_digest(digest, _NOBODY if stored is None else stored.digest) or stored is None:
            raise AccessDenied("the key is not known", status=401, reason=Refusal.UNKNOWN.value)
        key, now = stored.key, self._clock()
        if _has_expired(key, now):
            raise AccessDenied(
                f"the key {key.name!r} has expired: `paceline keys make` makes another",
                status=401,
                reason=Refusal.EXPIRED.value,
            )
        if key.last_used_at is None or now - key.last_used_at.timestamp() >= _USE_STEP_SECONDS:
            self._note_use(stored, now)
        return key

    async def make(
        self,
        name: str,
        kind: KeyKind,
        *,
        profiles: Iterable[str] | None = None,
        expires_at: datetime | None = None,
    ) -> MadeKey:
        """A new key. `expires_at` is aware of its zone. Raises KeyExists, KeyInvalid."""
        permitted = None if profiles is None else frozenset(profiles)
        async with self._writing:
            now = datetime.fromtimestamp(int(self._clock()), UTC)
            self._demand_makeable(name, kind, permitted, expires_at, now)
            key_id, secret = new_secret()
            key = Key(name, kind, permitted, created_at=now, expires_at=expires_at)
            stored = StoredKey(key, key_id, digest_of(secret.encode()))
            await self._database.write(lambda session: add_key(session, stored))
            self._by_id[key_id.encode()] = stored
        _log.info("key %s was made: %s", name, kind.value)
        return MadeKey(key, secret)

    async def revoke(self, name: str) -> None:
        """The key opens no more. Raises KeyNotFound, KeyNeeded."""
        async with self._writing:
            stored = self._removable(name)
            await self._database.write(lambda session: remove_key(session, stored.key_id))
            del self._by_id[stored.key_id.encode()]
        _log.info("key %s was revoked", name)

    def _demand_makeable(
        self, name: str, kind: KeyKind, profiles: frozenset[str] | None, expires_at: datetime | None, now: datetime
    ) -> None:
        if not _NAME.fullmatch(name):
            raise KeyInvalid(
                f"{name[:100]!r} is no name of a key: up to 64 lower-case letters, digits, `.`, `_` and `-`",
                field="name",
            )
        if name in (CONFIGURED.name, CONFIGURED_METRICS.name):
            raise KeyInvalid(f'"{name}" is what a key of the settings is called: choose another name', field="name")
        if any(key.name == name for key in self.list()):
            raise KeyExists(f'there is a key "{name}" already: revoke it first, or choose another name', name=name)
        if kind is KeyKind.ADMIN and profiles is not None:
            raise KeyInvalid("an admin key may use every profile: leave `profiles` out", field="profiles")
        if kind is KeyKind.METRICS and profiles is not None:
            raise KeyInvalid("a key for metrics uses no profile: leave `profiles` out", field="profiles")
        if profiles is not None and not profiles:
            raise KeyInvalid(
                "the key could use no profile: name some, or leave `profiles` out for all", field="profiles"
            )
        if expires_at is not None and expires_at <= now:
            raise KeyInvalid("the key would have expired already: name a time to come", field="expires_at")
        if kind is not KeyKind.ADMIN and not self._admins(now.timestamp()):
            raise KeyInvalid(
                "there is no admin key yet, and with a key the service is closed to who has none: make an admin key "
                "first",
                field="kind",
            )

    def _removable(self, name: str) -> StoredKey:
        if any(key.name == name for key in self._configured):
            variables = "PACELINE_ADMIN_KEY or PACELINE_ADMIN_KEY_FILE"
            if name == CONFIGURED_METRICS.name:
                variables = "PACELINE_METRICS_KEY_FILE"
            raise KeyNeeded(f"this key comes from the settings: take {variables} away, and start the service anew")
        stored = next((stored for stored in self._by_id.values() if stored.key.name == name), None)
        if stored is None:
            near = near_names(name, (key.name for key in self.list()))
            advice = f"; is it {' or '.join(near)}?" if near else ""
            raise KeyNotFound(f'there is no key "{name}"{advice}', name=name)
        left = [key for key in self.list() if key.name != name and key is not CONFIGURED_METRICS]
        if not left and not self._may_be_empty:
            raise KeyNeeded(
                "this is the last key, and the service can be reached from other machines: make another first"
            )
        if left and not set(self._admins(self._clock())) - {name}:
            raise KeyNeeded("this is the last admin key: make another, or revoke the other keys first")
        return stored

    def _admins(self, now: float) -> Sequence[str]:
        """The names of the keys that may make keys."""
        return [key.name for key in self.list() if key.kind is KeyKind.ADMIN and not _has_expired(key, now)]

    def _note_use(self, stored: StoredKey, now: float) -> None:
        at = datetime.fromtimestamp(int(now), UTC)
        self._by_id[stored.key_id.encode()] = replace(stored, key=replace(stored.key, last_used_at=at))
        # A service that stops goes on serving what it has; the time of use may be lost then.
        with contextlib.suppress(DatabaseUnavailable):
            self._database.submit(lambda session: note_use(session, stored.key_id, at), urgent=False)


def _has_expired(key: Key, now: float) -> bool:
    return key.expires_at is not None and key.expires_at.timestamp() <= now
