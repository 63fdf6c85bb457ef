"""The roster: the newest life of each profile in this run of the service. The supervisor writes it; others read."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.errors import InstanceNotFound, ProfileNotRunning
from app.identifiers import id_text
from app.instances.instance import Instance
from app.instances.lease import Lease
from app.instances.output import read_tail
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState


class Roster:
    """`queued` tells how many requests wait for a profile; `logs_dir` keeps the output of lives that are over."""

    def __init__(self, logs_dir: Path, queued: Callable[[str], int]) -> None:
        self._logs_dir = logs_dir
        self._queued = queued
        self._newest: dict[str, Instance] = {}

    def add(self, life: Instance) -> None:
        """A new life; the one before it of the same profile has ended."""
        self._newest[life.profile_id] = life

    def forget(self, profile_id: str) -> None:
        """The profile is gone; a life that has not ended stays known."""
        life = self._newest.get(profile_id)
        if life is not None and life.state.is_terminal:
            del self._newest[profile_id]

    def newest(self, profile_id: str) -> Instance | None:
        """The newest life of a profile."""
        return self._newest.get(profile_id)

    def lease(self, profile_id: str, *, is_look: bool = False) -> Lease:
        """A hold on the newest life of a profile. Raises ProfileNotRunning unless that is ready."""
        life = self._newest.get(profile_id)
        if life is None:
            raise ProfileNotRunning(
                f"profile {profile_id!r} is not running", profile=profile_id, state=InstanceState.STOPPED.value
            )
        return life.lease(is_look=is_look)

    def queued(self, profile_id: str) -> int:
        """How many requests wait for a profile, which may have no life yet."""
        return self._queued(profile_id)

    async def next_release(self, profile_id: str) -> None:
        """Until a request of the newest life gives back its hold; at once where there is none."""
        life = self._newest.get(profile_id)
        if life is not None:
            await life.holds.next_release()

    def lives(self) -> Sequence[Instance]:
        """The newest life of each profile."""
        # A copy, made in one step: answers such as that of /metrics are made in threads of their own.
        return list(self._newest.values())

    def record(self, profile_id: str) -> InstanceRecord | None:
        """How the newest life of a profile stands, with the requests that wait for it."""
        life = self._newest.get(profile_id)
        return None if life is None else replace(life.record(), queued=self._queued(profile_id))

    def records(self) -> Sequence[InstanceRecord]:
        """The newest life of each profile, newest first."""
        found = [replace(life.record(), queued=self._queued(life.profile_id)) for life in self.lives()]
        return sorted(found, key=lambda record: -record.id)

    def logs(self, profile_id: str, count: int) -> tuple[int, Sequence[str]]:
        """The newest life of a profile and its last lines. Raises InstanceNotFound."""
        life = self._newest.get(profile_id)
        if life is None:
            raise InstanceNotFound(f"profile {profile_id!r} has not been started since the service runs")
        return life.id, life.output.tail(count)

    def logs_of(self, identifier: int, count: int) -> Sequence[str]:
        """The last lines of one life, also after its end."""
        for life in self.lives():
            if life.id == identifier:
                return life.output.tail(count)
        return read_tail(self._logs_dir / f"{id_text(identifier)}.log", count)
