"""The lives that run: each is a task, from its launch until its process is reaped."""

import asyncio
import logging
from collections.abc import Callable

from app.identifiers import TimeOrderedIds, id_text
from app.instances.addresses import Addresses
from app.instances.instance import Instance
from app.instances.launcher import Fitting
from app.instances.log_files import prune_logs
from app.instances.needs import InstanceNeeds, Listeners
from app.instances.orphans import ChildFiles
from app.instances.roster import Roster
from app.instances.surroundings import Surroundings
from app.profiles.profile import Serving

_log = logging.getLogger(__name__)


class Lives:
    """Begins lives, enters them in the roster, and clears up behind them.

    `on_empty` hears when one becomes idle; `serving` is what a profile says of its serving now, None where it is gone.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        roster: Roster,
        tell: Listeners,
        *,
        on_empty: Callable[[], None],
        serving: Callable[[str], Serving | None],
    ) -> None:
        self._logs_dir = surroundings.logs_dir
        self._logs_kept = surroundings.logs_kept
        self._roster = roster
        self._ids = TimeOrderedIds()
        self._addresses = Addresses(surroundings.runtime_dir, surroundings.transport)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        empty_folder = surroundings.runtime_dir / "config"
        empty_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._needs = InstanceNeeds(
            logs_dir=surroundings.logs_dir,
            empty_folder=empty_folder,
            deadlines=surroundings.deadlines,
            canary=surroundings.canary,
            tell=tell,
            on_empty=on_empty,
            serving=serving,
            children=ChildFiles(surroundings.children_dir, surroundings.runtime_dir),
        )

    def begin(self, fitting: Fitting, fallback_reason: str | None) -> Instance:
        """A new life. Raises OSError where there is no address or no place for its output."""
        identifier = self._ids.next()
        life = Instance(
            identifier,
            fitting.launch,
            self._addresses.address(identifier),
            self._needs,
            followed_eviction=fitting.followed_eviction,
            fallback_reason=fallback_reason,
        )
        self._roster.add(life)
        task = asyncio.create_task(life.live(), name=f"instance {id_text(identifier)}")
        self._tasks[identifier] = task
        task.add_done_callback(lambda _: self._ended(life))
        return life

    async def until_all_ended(self) -> None:
        """Wait until every process is reaped."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _ended(self, life: Instance) -> None:
        task = self._tasks.pop(life.id)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("the life of instance %s broke", id_text(life.id), exc_info=failure)
        self._addresses.release(life.id)
        self._needs.children.remove(life.id)
        prune_logs(self._logs_dir, self._logs_kept, {each.id for each in self._roster.lives()})
