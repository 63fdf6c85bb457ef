"""Profiles declared as YAML files in a folder. The file is the owner: the API only shows such a profile.

A file that cannot be used is reported with the line, and what it said last stays in force.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from watchfiles import awatch

from app.errors import PacelineError, ProfileError, ProfileInUse
from app.profiles.catalog import ProfileCatalog
from app.profiles.folder import FileContent, FileProblem, folder_state, read_folder

_log = logging.getLogger(__name__)


class ProfileFiles:
    """Keeps the catalog in step with a folder, which may come later, or go.

    `look_seconds` is how often the folder is looked at even where the system tells of no change, as network file
    systems do not.
    """

    def __init__(self, folder: Path, catalog: ProfileCatalog, *, look_seconds: float = 1.0) -> None:
        self._folder = folder
        self._catalog = catalog
        self._look_seconds = look_seconds
        self._state: object = None
        self._synced = False
        self._problems: tuple[FileProblem, ...] = ()
        self._held: tuple[str, ...] = ()

    def problems(self) -> Sequence[FileProblem]:
        """What is wrong with the files now, by file and line."""
        return self._problems

    async def sync(self) -> None:
        """Read the folder and let the catalog agree with it. Raises DatabaseUnavailable."""
        state = await asyncio.to_thread(folder_state, self._folder)
        contents, problems = await asyncio.to_thread(read_folder, self._folder)
        if contents is not None:
            problems = [*problems, *await self._apply(contents)]
        self._report(problems)
        self._state, self._synced = state, True

    async def watch(self) -> None:
        """Sync now and after each change, until cancelled."""
        while True:
            await self._sync_if_changed()
            try:
                changes = awatch(
                    self._folder,
                    watch_filter=None,
                    recursive=False,
                    yield_on_timeout=True,
                    rust_timeout=int(self._look_seconds * 1000),
                )
                async with aclosing(changes):
                    async for _ in changes:
                        await self._sync_if_changed()
                        if not self._folder.is_dir():
                            break
            except (OSError, RuntimeError) as failure:
                _log.debug("no notice of changes in %s: %s", self._folder, failure)
            await asyncio.sleep(self._look_seconds)

    async def _sync_if_changed(self) -> None:
        try:
            state = await asyncio.to_thread(folder_state, self._folder)
            if state != self._state or not self._synced:
                await self.sync()
            elif self._held:
                await self._withdraw(self._held)
        except PacelineError as failure:
            _log.error("the profiles folder %s could not be taken in: %s", self._folder, failure)
            self._synced = False

    async def _apply(self, contents: Mapping[str, FileContent]) -> Sequence[FileProblem]:
        problems: list[FileProblem] = []
        owners = self._owners(contents)
        for file, content in contents.items():
            for profile, line in content.profiles:
                owner = owners[profile.id]
                if owner != file:
                    message = f'profile "{profile.id}" is declared by {owner} already'
                    problems.append(FileProblem(file, line, message))
                    continue
                try:
                    await self._catalog.declare(profile, file)
                except ProfileError as failure:
                    problems.append(FileProblem(file, line, failure.message))
        await self._withdraw([profile_id for profile_id in self._managed() if profile_id not in owners])
        return problems

    def _owners(self, contents: Mapping[str, FileContent]) -> Mapping[str, str]:
        """Which file each declared id belongs to: the one that has it, else the first by name.

        A file with a problem still holds what it declared when it was good.
        """
        held = self._managed()
        claims: dict[str, list[str]] = {}
        for file, content in contents.items():
            for profile, _ in content.profiles:
                claims.setdefault(profile.id, []).append(file)
        for profile_id, file in held.items():
            if file in contents and not contents[file].is_good:
                claims.setdefault(profile_id, []).append(file)
        return {
            profile_id: held[profile_id] if held.get(profile_id) in files else min(files)
            for profile_id, files in claims.items()
        }

    def _managed(self) -> Mapping[str, str]:
        return {
            stored.profile.id: stored.managed_by for stored in self._catalog.list() if stored.managed_by is not None
        }

    async def _withdraw(self, profile_ids: Sequence[str]) -> None:
        held: list[str] = []
        for profile_id in profile_ids:
            try:
                await self._catalog.withdraw(profile_id)
            except ProfileInUse:
                held.append(profile_id)
                if profile_id not in self._held:
                    _log.warning(
                        'profile "%s" is no longer declared, but runs: it goes once it has stopped', profile_id
                    )
        self._held = tuple(held)

    def _report(self, problems: Sequence[FileProblem]) -> None:
        for problem in problems:
            if problem not in self._problems:
                _log.error("%s", problem)
        self._problems = tuple(problems)
