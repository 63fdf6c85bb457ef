"""Stopping what runs and starting it anew, as one piece of work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.errors import ProfileNotRunning
from app.events import Event
from app.instances.facts import ProfileRestarted, RestartCause
from app.instances.instance import Instance
from app.instances.roster import Roster
from app.instances.wishes import Wish, Wishes

_log = logging.getLogger(__name__)


class Restarts:
    """Owns the restarts that are under way. From its beginning on each is a wish: a stop by hand withdraws it.

    Those that came to a new life are told to `publish`.
    """

    def __init__(self, roster: Roster, wishes: Wishes, publish: Callable[[Event], None]) -> None:
        self._roster = roster
        self._wishes = wishes
        self._publish = publish
        self._tasks: set[asyncio.Task[Instance]] = set()

    def begin(
        self, profile_id: str, drain_seconds: float, reason: str, start: Callable[[Wish], Awaitable[Instance]]
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
        self, profile_id: str, drain_seconds: float, reason: str, start: Callable[[Wish], Awaitable[Instance]]
    ) -> Instance:
        with self._wishes.wish(profile_id) as wish:
            life = self._roster.newest(profile_id)
            if life is not None and not life.state.is_terminal:
                life.ask_to_stop(drain_seconds, reason)
                await life.until(lambda state: state.is_terminal)
            following = await start(wish)
            if life is not None:
                cause = RestartCause.FALLBACK if reason == "fallback" else RestartCause.ASKED
                self._publish(ProfileRestarted(profile_id, cause))
            return following

    def _ended(self, task: asyncio.Task[Instance]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            level = logging.INFO if isinstance(failure, ProfileNotRunning) else logging.ERROR
            _log.log(level, "a restart did not come to its start: %s", failure)
