"""The supervisor owns the instances: who wants one started or stopped asks here, and nowhere else."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import InstanceNotFound, InstanceNotRunning, LaunchRefused, ProfileNotRunning
from app.events import Event
from app.findings import Severity
from app.identifiers import TimeOrderedIds, id_text
from app.instances.deadlines import Deadlines
from app.instances.instance import Instance
from app.instances.lease import Lease
from app.instances.output import read_tail
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.launch.check import LaunchCheck
from app.launch.circumstances import OtherLaunches
from app.launch.report import Launch, promised_host_bytes, required_memory
from app.llama_server.flags import ListenAddress
from app.placement.budgets import HOST_NAME
from app.profiles.catalog import ProfileCatalog

_log = logging.getLogger(__name__)
# A Unix socket's path, its final zero included, has 108 bytes.
_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where instances live: `runtime_dir` is short and private, `transport` is `auto`, `unix` or `tcp`."""

    runtime_dir: Path
    logs_dir: Path
    transport: str
    deadlines: Deadlines


class Supervisor:
    """Starts, stops and lends instances; at most one that is not terminal for each profile.

    `keep` stores the record of every life at each of its changes.
    """

    def __init__(
        self,
        catalog: ProfileCatalog,
        check: LaunchCheck,
        surroundings: Surroundings,
        *,
        publish: Callable[[Event], None],
        keep: Callable[[InstanceRecord], None],
    ) -> None:
        self._catalog = catalog
        self._check = check
        self._surroundings = surroundings
        self._publish = publish
        self._keep = keep
        self._ids = TimeOrderedIds()
        self._newest: dict[str, Instance] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        # Planning and registering happen under one lock: a launch is planned against what the one before it took.
        self._launching = asyncio.Lock()
        self._closing = False
        self._starting: Counter[str] = Counter()
        self._restarts: set[asyncio.Task[Instance]] = set()
        self._empty_folder = surroundings.runtime_dir / "config"
        self._empty_folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # To show.

    def newest(self, profile_id: str) -> Instance | None:
        """The newest life of a profile in this run of the service."""
        return self._newest.get(profile_id)

    def records(self) -> Sequence[InstanceRecord]:
        """The newest life of each profile, newest first."""
        return sorted((life.record() for life in self._newest.values()), key=lambda record: -record.id)

    def is_running(self, profile_id: str) -> bool:
        """Whether a life of the profile has not ended, or is about to begin."""
        life = self._newest.get(profile_id)
        return self._starting[profile_id] > 0 or (life is not None and not life.state.is_terminal)

    def others(self, profile_id: str) -> OtherLaunches:
        """What instances do to the memory that a launch of this profile would meet."""
        reserved: Counter[str] = Counter()
        returning: Counter[str] = Counter()
        for life in self._newest.values():
            if life.state.is_terminal:
                continue
            is_loading = life.state in (InstanceState.STARTING, InstanceState.LOADING)
            for name, used_bytes in required_memory(life.launch.report).items():
                # An RPC server speaks with one client: while one of ours holds it, it shows what was free before.
                is_unseen = is_loading or name.startswith("RPC")
                if life.profile_id != profile_id and is_unseen:
                    reserved[name] += used_bytes
                elif life.profile_id == profile_id and not is_unseen:
                    returning[name] += used_bytes
            # Caches on the host fill while it serves: until then nobody sees them, and nobody gets them back.
            caches_bytes = promised_host_bytes(life.launch.report)
            if life.profile_id == profile_id:
                returning[HOST_NAME] = max(0, returning[HOST_NAME] - caches_bytes)
            elif not is_loading:
                reserved[HOST_NAME] += caches_bytes
        holders = {
            life.profile_id
            for life in self._newest.values()
            if not life.state.is_terminal and "--rpc" in life.launch.flags
        }
        return OtherLaunches(
            dict(reserved), dict(returning), holds_rpc=bool(holders - {profile_id}), own_rpc=profile_id in holders
        )

    def status(self, profile_id: str) -> Mapping[str, Any]:
        """The read-only `status` of a profile."""
        life = self._newest.get(profile_id)
        record = life.record() if life else None
        return {
            "state": record.state.value if record else InstanceState.STOPPED.value,
            "instance_id": id_text(record.id) if record else None,
            "backoff_until": None,
            "last_failure": f"{record.reason}: {record.failure['message']}" if record and record.failure else None,
        }

    def logs(self, profile_id: str, count: int) -> tuple[int, Sequence[str]]:
        """The newest life of a profile and its last lines. Raises InstanceNotFound."""
        life = self._newest.get(profile_id)
        if life is None:
            raise InstanceNotFound(f"profile {profile_id!r} has not been started since the service runs")
        return life.id, life.output.tail(count)

    def logs_of(self, identifier: int, count: int) -> Sequence[str]:
        """The last lines of one life, also after its end."""
        for life in self._newest.values():
            if life.id == identifier:
                return life.output.tail(count)
        return read_tail(self._log_path(identifier), count)

    # To change.

    async def start(self, profile_id: str, *, force: bool = False) -> tuple[Instance, bool]:
        """The running instance of the profile, or a new one (then True). Raises LaunchRefused with the report."""
        self._starting[profile_id] += 1
        try:
            return await self._start(profile_id, force=force)
        finally:
            self._starting[profile_id] -= 1

    async def _start(self, profile_id: str, *, force: bool) -> tuple[Instance, bool]:
        while True:
            async with self._launching:
                life = self._newest.get(profile_id)
                if life is None or life.state.is_terminal:
                    return await self._launch(profile_id, force=force), True
                if life.state in (InstanceState.STARTING, InstanceState.LOADING, InstanceState.READY):
                    return life, False
            # It is on its way out: its memory is free when it has ended.
            await life.until(lambda state: state.is_terminal)

    async def _launch(self, profile_id: str, *, force: bool) -> Instance:
        launch = await self._checked(profile_id, force=force)
        if self._closing:
            raise ProfileNotRunning("the service is stopping and starts nothing new", profile=profile_id)
        return self._register(launch)

    async def _checked(self, profile_id: str, *, force: bool) -> Launch:
        stored = self._catalog.get(profile_id)
        checked = await self._check.check(stored.profile, stored.revision, force=force)
        if checked.launch is None:
            errors = [f for f in checked.report.findings if f.severity is Severity.ERROR]
            raise LaunchRefused(
                f"profile {profile_id!r} is not launched: " + " ".join(f"[{f.rule}] {f.message}" for f in errors),
                checked.report,
            )
        # While the files were read, the profile may have gone: ProfileNotFound then.
        self._catalog.get(profile_id)
        return checked.launch

    def _register(self, launch: Launch) -> Instance:
        identifier = self._ids.next()
        life = Instance(
            identifier,
            launch,
            self._address(identifier),
            log_path=self._log_path(identifier),
            empty_folder=self._empty_folder,
            deadlines=self._surroundings.deadlines,
            publish=self._publish,
            on_change=self._keep,
        )
        self._newest[launch.profile.id] = life
        task = asyncio.create_task(life.live(), name=f"instance {id_text(identifier)}")
        self._lives[identifier] = task
        task.add_done_callback(lambda _: self._ended(life))
        return life

    def _ended(self, life: Instance) -> None:
        task = self._lives.pop(life.id)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("the life of instance %s broke", id_text(life.id), exc_info=failure)
        socket_path = self._socket_path(life.id)
        # The engine leaves its socket behind.
        socket_path.unlink(missing_ok=True)

    def lease(self, profile_id: str) -> Lease:
        """A hold on the profile's instance for one request. Raises ProfileNotRunning."""
        life = self._newest.get(profile_id)
        if life is None:
            raise ProfileNotRunning(
                f"profile {profile_id!r} is not running: POST /profiles/{profile_id}/start starts it",
                profile=profile_id,
                state=InstanceState.STOPPED.value,
            )
        return life.lease()

    def stop(self, profile_id: str, drain_seconds: float) -> Instance:
        """Ask the profile's instance to stop; a terminal one is returned as it is. Raises InstanceNotRunning."""
        life = self._newest.get(profile_id)
        if life is None:
            self._catalog.get(profile_id)
            raise InstanceNotRunning(f"profile {profile_id!r} has no instance to stop", profile=profile_id)
        life.ask_to_stop(drain_seconds)
        return life

    async def restart(self, profile_id: str, drain_seconds: float, *, force: bool = False) -> asyncio.Task[Instance]:
        """Stop what runs, then start anew: a task that ends with the new instance.

        The check comes first: a profile that would be refused goes on serving as it is. Raises LaunchRefused.
        """
        await self._checked(profile_id, force=force)
        task = asyncio.create_task(self._restart(profile_id, drain_seconds, force=force))
        self._restarts.add(task)
        task.add_done_callback(self._restarted)
        return task

    def _restarted(self, task: asyncio.Task[Instance]) -> None:
        self._restarts.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("a restart did not come to its start: %s", failure)

    async def _restart(self, profile_id: str, drain_seconds: float, *, force: bool) -> Instance:
        life = self._newest.get(profile_id)
        if life is not None and not life.state.is_terminal:
            life.ask_to_stop(drain_seconds)
            await life.until(lambda state: state.is_terminal)
        started, _ = await self.start(profile_id, force=force)
        return started

    def forget(self, profile_id: str) -> None:
        """The profile is gone: a later one of that id starts without its past."""
        life = self._newest.get(profile_id)
        if life is not None and life.state.is_terminal:
            del self._newest[profile_id]

    async def close(self, drain_seconds: float) -> None:
        """Stop every instance and wait until all are reaped."""
        self._closing = True
        for life in self._newest.values():
            life.ask_to_stop(drain_seconds)
        if self._lives:
            await asyncio.wait(list(self._lives.values()))

    # Where an instance listens and writes.

    def _socket_path(self, identifier: int) -> Path:
        return self._surroundings.runtime_dir / f"{id_text(identifier)}.sock"

    def _log_path(self, identifier: int) -> Path:
        return self._surroundings.logs_dir / f"{id_text(identifier)}.log"

    def _address(self, identifier: int) -> ListenAddress:
        path = str(self._socket_path(identifier))
        if self._surroundings.transport != "tcp" and len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
            return ListenAddress(socket_path=path)
        return ListenAddress(port=_free_port())


def _free_port() -> int:
    """A loopback port that is free now; should another program take it first, the engine says so and exits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
