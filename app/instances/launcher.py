"""Making a launch fit: idle instances are ended where that helps, and devices must show the memory as free first."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.events import Event
from app.instances import residency
from app.instances.facts import ResidencyEvicted
from app.instances.instance import Instance
from app.instances.room import RoomFinder, refusal
from app.launch.report import Launch, PlacementReport
from app.profiles.stored import StoredProfile

EVICTED = "evicted"
_LOOK_SECONDS = 0.25
# Drivers give memory back a moment after a process is gone.
_JUST_ENDED_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """It has to wait for instances that cannot go now; the report says so."""

    instance_ids: Sequence[int]
    report: PlacementReport


@dataclass(frozen=True, slots=True)
class Fitting:
    """A launch that fits now, and whether it takes memory that was given back a moment ago."""

    launch: Launch
    followed_eviction: bool


class Launcher:
    """Called under the lock of launches, so that nobody else takes what it has made free.

    `lives` are the newest life of each profile. Devices have `return_seconds` to show the memory of one that was ended
    for others, or of an earlier life of the same profile.
    """

    def __init__(
        self,
        rooms: RoomFinder,
        lives: Callable[[], Sequence[Instance]],
        *,
        return_seconds: float,
        publish: Callable[[Event], None],
    ) -> None:
        self._rooms = rooms
        self._lives = lives
        self._return_seconds = return_seconds
        self._publish = publish
        self._returned: set[int] = set()

    async def room_for(
        self, stored: StoredProfile, *, force: bool, may_evict: bool, kept: frozenset[int]
    ) -> Fitting | Waiting:
        """The checked launch once it fits; instances that are `kept` do not go for it. Raises LaunchRefused."""
        clock = asyncio.get_running_loop().time
        evicted: dict[int, Instance] = {}
        awaited: set[int] = set()
        ended_at = clock()
        is_told = False
        try:
            while True:
                on_the_way = self._on_the_way(stored.profile.id)
                room = await self._rooms.find(
                    stored.profile,
                    stored.revision,
                    force=force,
                    may_evict=may_evict,
                    on_the_way=on_the_way,
                    kept=kept,
                )
                match room.decision:
                    case residency.Launch():
                        self._tell(stored, evicted, clock() - ended_at)
                        is_told = True
                        # What was waited for is there: the next start that lacks room does not wait for it again.
                        self._returned = (self._returned | awaited) & {life.id for life in self._lives()}
                        assert room.checked.launch is not None  # noqa: S101 - that is what the decision says
                        return Fitting(room.checked.launch, bool(awaited))
                    case residency.Refuse():
                        raise refusal(stored.profile.id, room.checked.report)
                    case residency.Evict(instance_ids):
                        for life in self._ask_to_go(instance_ids):
                            await life.until(lambda state: state.is_terminal)
                            evicted[life.id] = life
                            awaited.add(life.id)
                            ended_at = clock()
                    case residency.Wait(instance_ids):
                        if not all(life.state.is_terminal for life in self._named(instance_ids)):
                            return Waiting(instance_ids, room.checked.report)
                        awaited.update(on_the_way)
                        await asyncio.sleep(_LOOK_SECONDS)
        finally:
            if not is_told:
                self._tell(stored, evicted, None)

    def _on_the_way(self, profile_id: str) -> frozenset[int]:
        """Who has ended so short a time ago that devices may not show all of the memory yet."""

        def return_seconds(life: Instance) -> float:
            # It had room before, or was to make some: to wait is better than to end others, or to refuse.
            is_counted_on = life.profile_id == profile_id or life.story.stop_reason == EVICTED
            return self._return_seconds if is_counted_on else min(_JUST_ENDED_SECONDS, self._return_seconds)

        return frozenset(
            life.id
            for life in self._lives()
            if life.id not in self._returned and life.story.ended_seconds_ago < return_seconds(life)
        )

    def _named(self, instance_ids: Sequence[int]) -> list[Instance]:
        return [life for life in self._lives() if life.id in instance_ids]

    def _ask_to_go(self, instance_ids: Sequence[int]) -> list[Instance]:
        """All of them or none: since the decision one may have got a request. From here on they take none."""
        going = self._named(instance_ids)
        if len(going) < len(instance_ids) or any(life.has_leases or life.is_ending for life in going):
            return []
        for life in going:
            life.ask_to_stop(0, EVICTED)
        return going

    def _tell(self, stored: StoredProfile, evicted: dict[int, Instance], freed_seconds: float | None) -> None:
        if evicted:
            names = [life.profile_id for life in evicted.values()]
            self._publish(ResidencyEvicted(stored.profile.id, tuple(evicted), tuple(names), freed_seconds))
