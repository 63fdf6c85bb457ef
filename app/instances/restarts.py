"""Stopping what runs and starting it anew, as one piece of work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.instances.instance import Instance
from app.instances.roster import Roster

_log = logging.getLogger(__name__)


class Restarts:
    """Owns the restarts that are under way."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._tasks: set[asyncio.Task[Instance]] = set()

    def begin(
        self, profile_id: str, drain_seconds: float, reason: str, start: Callable[[str], Awaitable[Instance]]
    ) -> asyncio.Task[Instance]:
        """Let the present life end, its requests having so long, then `start`: a task that ends with the new life."""
        task = asyncio.create_task(self._restart(profile_id, drain_seconds, reason, start))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def close(self) -> None:
        """Give up those that are under way."""
        for task in self._tasks:
            task.cancel()

    async def _restart(
        self, profile_id: str, drain_seconds: float, reason: str, start: Callable[[str], Awaitable[Instance]]
    ) -> Instance:
        life = self._roster.newest(profile_id)
        if life is not None and not life.state.is_terminal:
            life.ask_to_stop(drain_seconds, reason)
            await life.until(lambda state: state.is_terminal)
        return await start(profile_id)

    def _ended(self, task: asyncio.Task[Instance]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("a restart did not come to its start: %s", failure)
