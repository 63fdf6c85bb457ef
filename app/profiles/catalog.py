"""ProfileCatalog: the one owner of profiles. What it shows from memory is what the database holds."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from app.database import Database
from app.errors import ProfileChanged, ProfileExists, ProfileInUse, ProfileInvalid, ProfileManaged, ProfileNotFound
from app.events import Event
from app.near_names import near_names
from app.profiles.names import claims_of, names_of
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile
from app.profiles.stored import (
    ProfileRevision,
    StoredProfile,
    change_owner,
    mark_deleted,
    read_current,
    read_revision,
    read_revisions,
    save,
    text_of,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfileSaved(Event):
    """A revision was committed."""

    profile_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class ProfileDeleted(Event):
    """A profile ended; its revisions remain."""

    profile_id: str


class ProfileCatalog:
    """Profiles by id, their names and their history. `load` first.

    Reads come from memory, save for the history. Writes are one after another; each is in the database before it is
    shown and told to `publish`. `in_use` says whether a profile runs; `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        publish: Callable[[Event], None],
        in_use: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._publish = publish
        self._in_use = in_use
        self._clock = clock
        self._writing = asyncio.Lock()
        self._show({})

    def load(self) -> None:
        """Read every profile. One that no longer validates is logged and left out: the others must serve."""
        with self._database.read() as session:
            profiles, problems = read_current(session)
        for problem in problems:
            _log.error("%s", problem)
        self._show({stored.profile.id: stored for stored in profiles})

    def get(self, profile_id: str) -> StoredProfile:
        """The profile. Raises ProfileNotFound, naming near ones."""
        found = self._profiles.get(profile_id)
        if found is None:
            raise self._not_found(profile_id)
        return found

    def find(self, profile_id: str) -> StoredProfile | None:
        """The profile, or None."""
        return self._profiles.get(profile_id)

    def list(self) -> Sequence[StoredProfile]:
        """Every profile, by id."""
        return sorted(self._profiles.values(), key=lambda stored: stored.profile.id)

    def names(self) -> Mapping[str, str]:
        """Every id and alias, each with the id of the profile it means. Immutable; ask again after a change."""
        return self._names

    def claims(self, name: str) -> Sequence[str]:
        """The ids of all profiles that claim this name, the one that gets it first."""
        return claims_of(self._profiles.values(), name)

    def revisions(self, profile_id: str) -> Sequence[ProfileRevision]:
        """The history, newest first, also of a deleted profile. Raises ProfileNotFound. Reads the database."""
        with self._database.read() as session:
            found = read_revisions(session, profile_id)
        if not found:
            raise self._not_found(profile_id)
        return found

    def revision(self, profile_id: str, revision: int) -> ProfileRevision:
        """One revision, also of a deleted profile. Raises ProfileNotFound. Reads the database."""
        with self._database.read() as session:
            found = read_revision(session, profile_id, revision)
        if found is None:
            raise ProfileNotFound(
                f'profile "{profile_id}" has no revision {revision}; GET /profiles/{profile_id}/revisions lists them',
                profile_id=profile_id,
            )
        return found

    async def create(self, profile: LaunchProfile) -> StoredProfile:
        """A new profile. Raises ProfileExists, ProfileInvalid."""
        async with self._writing:
            existing = self._profiles.get(profile.id)
            if existing is not None:
                raise ProfileExists(
                    f'a profile "{profile.id}" exists already, at revision {existing.revision}; change that one, or '
                    "choose another id",
                    profile_id=profile.id,
                )
            return await self._save(profile, None)

    async def replace(self, profile: LaunchProfile, expected_revision: int | None = None) -> StoredProfile:
        """The profile of that id now reads thus. Raises ProfileNotFound, ProfileManaged, ProfileChanged."""
        async with self._writing:
            return await self._save_over(self._changeable(profile.id, expected_revision), profile)

    async def patch(self, profile_id: str, patch: Any, expected_revision: int | None = None) -> StoredProfile:
        """Apply a JSON merge patch (RFC 7396). Raises as `replace` does, and ProfileInvalid."""
        async with self._writing:
            current = self._changeable(profile_id, expected_revision)
            if not isinstance(patch, Mapping):
                raise ProfileInvalid("a merge patch is a JSON object", [{"field": "", "message": "not an object"}])
            if patch.get("id", profile_id) != profile_id:
                message = f'an id cannot change: create the other profile and delete "{profile_id}"'
                raise ProfileInvalid(message, [{"field": "id", "message": message}])
            try:
                document = merge_patch(document_of(current.profile), patch)
            except RecursionError as failure:
                message = "nested too deeply"
                raise ProfileInvalid(f"the patch is {message}", [{"field": "", "message": message}]) from failure
            return await self._save_over(current, parse_profile(document))

    async def delete(self, profile_id: str, expected_revision: int | None = None) -> None:
        """End a profile. Raises ProfileNotFound, ProfileManaged, ProfileChanged, ProfileInUse."""
        async with self._writing:
            await self._delete(self._changeable(profile_id, expected_revision))

    async def declare(self, profile: LaunchProfile, file: str) -> StoredProfile:
        """`file` says that the profile reads thus, and owns it from now on. Raises ProfileExists for one of the API."""
        async with self._writing:
            current = self._profiles.get(profile.id)
            if current is None:
                return await self._save(profile, file)
            if current.managed_by is None:
                raise ProfileExists(
                    f'a profile "{profile.id}" was made through the API: delete it there, or choose another id here',
                    profile_id=profile.id,
                )
            if text_of(profile) != text_of(current.profile):
                return await self._save(profile, file)
            return current if current.managed_by == file else await self._own(current, file)

    async def withdraw(self, profile_id: str) -> None:
        """No file declares the profile any more. Raises ProfileInUse while it runs."""
        async with self._writing:
            current = self._profiles.get(profile_id)
            if current is not None and current.managed_by is not None:
                await self._delete(current)

    def _changeable(self, profile_id: str, expected_revision: int | None) -> StoredProfile:
        current = self.get(profile_id)
        if current.managed_by is not None:
            raise ProfileManaged(
                f'profile "{profile_id}" comes from the file {current.managed_by} in the profiles folder: change it '
                "there",
                profile_id=profile_id,
                file=current.managed_by,
            )
        if expected_revision is not None and expected_revision != current.revision:
            raise ProfileChanged(
                f'profile "{profile_id}" is at revision {current.revision}, not {expected_revision}: read it again and '
                "repeat the change",
                profile_id=profile_id,
                revision=current.revision,
            )
        return current

    async def _save_over(self, current: StoredProfile, profile: LaunchProfile) -> StoredProfile:
        if text_of(profile) == text_of(current.profile):
            return current
        return await self._save(profile, current.managed_by)

    async def _save(self, profile: LaunchProfile, managed_by: str | None) -> StoredProfile:
        document, now = text_of(profile), self._now_milliseconds()

        async def change() -> StoredProfile:
            stored = await self._database.write(lambda session: save(session, profile, document, managed_by, now))
            self._show({**self._profiles, profile.id: stored})
            self._publish(ProfileSaved(profile.id, stored.revision))
            return stored

        return await _carried_through(change())

    async def _own(self, current: StoredProfile, file: str) -> StoredProfile:
        profile_id = current.profile.id

        async def change() -> StoredProfile:
            await self._database.write(lambda session: change_owner(session, profile_id, file))
            owned = replace(current, managed_by=file)
            self._show({**self._profiles, profile_id: owned})
            return owned

        return await _carried_through(change())

    async def _delete(self, current: StoredProfile) -> None:
        profile_id, now = current.profile.id, self._now_milliseconds()
        if self._in_use(profile_id):
            raise ProfileInUse(f'profile "{profile_id}" runs: stop it first', profile_id=profile_id)

        async def change() -> None:
            # Out of sight first: from here on nobody can start it.
            self._show({other: stored for other, stored in self._profiles.items() if other != profile_id})
            try:
                await self._database.write(lambda session: mark_deleted(session, profile_id, now))
            except BaseException:
                self._show({**self._profiles, profile_id: current})
                raise
            self._publish(ProfileDeleted(profile_id))

        await _carried_through(change())

    def _show(self, profiles: Mapping[str, StoredProfile]) -> None:
        self._profiles = MappingProxyType(dict(profiles))
        self._names = names_of(profiles.values())

    def _not_found(self, profile_id: str) -> ProfileNotFound:
        owner = self._names.get(profile_id)
        near = [owner] if owner is not None else near_names(profile_id, self._names)
        if owner is not None:
            hint = f'that is an alias of "{owner}"'
        elif near:
            hint = "did you mean " + " or ".join(f'"{name}"' for name in near) + "?"
        else:
            hint = "there are no profiles yet" if not self._profiles else "GET /profiles lists what there is"
        return ProfileNotFound(f'there is no profile "{profile_id}"; {hint}', profile_id=profile_id, near=near)

    def _now_milliseconds(self) -> int:
        return int(self._clock() * 1000)


async def _carried_through(change: Coroutine[Any, Any, T]) -> T:
    """The change, completed even where its caller is cancelled: memory must not fall behind the database."""
    task = asyncio.create_task(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
