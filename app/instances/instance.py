"""One life of one server process. Only `live` writes its state; DESIGN.md beside this file tells the whole story."""

import asyncio
import contextlib
import math
import os
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from app.errors import ProfileNotRunning
from app.events import Event
from app.identifiers import id_text
from app.instances.deadlines import Deadlines
from app.instances.lease import LaunchContext, Lease, Upstream
from app.instances.output import OutputLog
from app.instances.process import ServerProcess
from app.instances.readiness import ForeignServer, Readiness, become_ready
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState, InstanceStateChanged
from app.launch.report import Launch, predicted_memory
from app.llama_server.environment import child_environment
from app.llama_server.flags import ListenAddress, command_line
from app.llama_server.log_lines import Failure, failure_of


class Instance:
    """A life: from about to exec to reaped. It happens once; a restart is a new instance.

    `empty_folder` stands in for the child's configuration folder. `on_change` hears the new record at each change.
    """

    def __init__(
        self,
        identifier: int,
        launch: Launch,
        address: ListenAddress,
        *,
        log_path: Path,
        empty_folder: Path,
        deadlines: Deadlines,
        publish: Callable[[Event], None],
        on_change: Callable[[InstanceRecord], None],
    ) -> None:
        self.id = identifier
        self.launch = launch
        self.output = OutputLog(log_path)
        self._deadlines = deadlines
        self._publish = publish
        self._on_change = on_change
        self._api_key = secrets.token_urlsafe(32)
        self._upstream = Upstream(identifier, self._api_key, address.socket_path, address.port)
        self._argv = command_line(launch.engine, launch.flags, address)
        self._env = child_environment(
            os.environ, launch.profile.env, empty_folder=str(empty_folder), api_key=self._api_key
        )
        self._context = LaunchContext(
            profile_id=launch.profile.id,
            revision=launch.revision,
            engine_build=launch.engine.build,
            argv_hash=blake2b("\0".join(launch.flags).encode(), digest_size=8).hexdigest(),
            device_set=launch.resolved.device_set,
            method=launch.profile.speculation.method.value,
        )
        self._state = InstanceState.STARTING
        self._created_at = datetime.now(UTC)
        self._process: ServerProcess | None = None
        self._readiness: Readiness | None = None
        self._ready_at: datetime | None = None
        self._stopped_at: datetime | None = None
        self._exit_code: int | None = None
        self._failure: Failure | None = None
        self._leases = 0
        self._drain_until = math.inf
        self._draining: asyncio.Timeout | None = None
        self._stop_asked = asyncio.Event()
        self._drained = asyncio.Event()
        self._changed = asyncio.Event()

    # What others read.

    @property
    def profile_id(self) -> str:
        """The profile that it serves."""
        return self.launch.profile.id

    @property
    def state(self) -> InstanceState:
        """Where it stands. To show; to start or stop something ask the supervisor."""
        return self._state

    def record(self) -> InstanceRecord:
        """How it stands now, as a value."""
        methods = self.launch.profile.speculation.methods
        return InstanceRecord(
            id=self.id,
            profile_id=self.profile_id,
            revision=self.launch.revision,
            state=self._state,
            engine_build=self.launch.engine.build,
            argv=self._argv,
            created_at=self._created_at,
            speculation={
                "asked": bool(methods),
                "active": self._readiness.speculates if self._readiness else None,
                "method": self.launch.profile.speculation.method.value,
                "draft_tokens_max": self.launch.resolved.draft_tokens_max if methods else 0,
            },
            reason=self._failure.reason if self._failure else None,
            failure=_failure_document(self._failure),
            degradations=sorted(self._readiness.degradations) if self._readiness else [],
            pid=self._process.pid if self._process and not self._state.is_terminal else None,
            ready_at=self._ready_at,
            stopped_at=self._stopped_at,
            exit_code=self._exit_code,
            load_seconds=(self._ready_at - self._created_at).total_seconds() if self._ready_at else None,
            leases=self._leases,
            memory={"predicted": predicted_memory(self.launch.report), "measured": {}},
        )

    async def until(self, reached: Callable[[InstanceState], bool]) -> InstanceState:
        """Wait until a state satisfies `reached`; every life ends, so ask for that too."""
        while not reached(self._state):
            await self._changed.wait()
        return self._state

    # What others ask for.

    def lease(self) -> Lease:
        """A hold on it for one request. Raises ProfileNotRunning unless it is READY."""
        if self._state is not InstanceState.READY:
            raise ProfileNotRunning(
                f"profile {self.profile_id!r} is {self._state.value} and takes no requests now"
                + (f": POST /profiles/{self.profile_id}/start starts it again" if self._state.is_terminal else ""),
                profile=self.profile_id,
                state=self._state.value,
            )
        self._leases += 1
        return Lease(self._upstream, self._context, self._give_back)

    def _give_back(self) -> None:
        self._leases -= 1
        if self._leases == 0:
            self._drained.set()

    def ask_to_stop(self, drain_seconds: float) -> None:
        """Stop: let running requests finish for so long, then end the process. Asking again may shorten the wait."""
        until = asyncio.get_running_loop().time() + drain_seconds
        self._drain_until = min(self._drain_until, until)
        self._stop_asked.set()
        if self._draining is not None:
            self._draining.reschedule(self._drain_until)

    # The life.

    async def live(self) -> None:
        """Run the whole life; returns when the process is reaped and the state is terminal."""
        self._on_change(self.record())
        self._publish(InstanceStateChanged(self.id, self.profile_id, self._state))
        try:
            self._process = await ServerProcess.start(self._argv, self._env, self.output.append)
        except (OSError, ValueError) as refusal:
            self._fail(Failure("engine-not-started", f"The engine could not be started: {refusal}"))
            return
        exited = self._process.exited
        self._enter(InstanceState.LOADING)
        try:
            if await self._load(self._process, exited):
                await self._serve(self._process, exited)
        finally:
            if not exited.done():
                # Only a bug or a cancelled service comes here: never leave a child behind.
                self._process.kill()
                await asyncio.wait({exited})
            self.output.close()

    async def _load(self, process: ServerProcess, exited: asyncio.Task[int]) -> bool:
        """LOADING until READY (True) or a terminal state (False)."""
        ready = asyncio.create_task(become_ready(self._upstream, process.pid, self.launch))
        asked = asyncio.create_task(self._stop_asked.wait())
        waited = {ready, asked, exited}
        try:
            await asyncio.wait(waited, timeout=self._deadlines.load_total_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            ready.cancel()
        problem = ready.exception() if ready.done() and not ready.cancelled() else None
        if exited.done():
            self._fail(self._named(exited.result()), exited.result())
        elif self._stop_asked.is_set():
            await self._stop(process)
        elif not ready.done():
            seconds = self._deadlines.load_total_seconds
            await self._give_up(process, "load-timeout", f"It was not ready within {seconds:g} s.")
        elif problem is not None:
            await self._give_up(process, *_why_not_ready(problem))
        else:
            return await self._accept(process, ready.result())
        return False

    async def _accept(self, process: ServerProcess, readiness: Readiness) -> bool:
        self._readiness = readiness
        if readiness.degradations and self.launch.profile.serving.on_degraded == "stop":
            listed = ", ".join(sorted(readiness.degradations))
            await self._give_up(
                process, sorted(readiness.degradations)[0], f"Degraded, and the profile says stop: {listed}."
            )
            return False
        self._ready_at = datetime.now(UTC)
        self._enter(InstanceState.READY)
        return True

    async def _serve(self, process: ServerProcess, exited: asyncio.Task[int]) -> None:
        """READY until the end."""
        if not await _first(self._stop_asked.wait(), exited):
            self._fail(self._named(exited.result()), exited.result())
            return
        self._enter(InstanceState.DRAINING)
        if self._leases == 0:
            self._drained.set()
        else:
            self._drained.clear()
        await _first(self._wait_drained(), exited)
        if exited.done():
            self._fail(self._named(exited.result()), exited.result())
            return
        await self._stop(process)

    async def _wait_drained(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._drain_until) as self._draining:
                await self._drained.wait()
        self._draining = None

    async def _stop(self, process: ServerProcess) -> None:
        """STOPPING until reaped. Whoever holds connections has closed them when `_enter` returns."""
        self._enter(InstanceState.STOPPING)
        self._exit_code = await self._end(process)
        self._stopped_at = datetime.now(UTC)
        self._enter(InstanceState.STOPPED)

    async def _give_up(self, process: ServerProcess, reason: str, message: str) -> None:
        """End a process that lives but shall not serve."""
        exit_code = await self._end(process)
        self._fail(Failure(reason, message, tuple(self.output.tail(20))), exit_code)

    async def _end(self, process: ServerProcess) -> int:
        return await process.end(self._deadlines.terminate_seconds, self._deadlines.kill_seconds)

    def _named(self, exit_code: int) -> Failure:
        return failure_of(exit_code, self.output.tail(400))

    def _fail(self, failure: Failure, exit_code: int | None = None) -> None:
        self._failure = failure
        self._exit_code = exit_code
        self._stopped_at = datetime.now(UTC)
        self._enter(InstanceState.FAILED)

    def _enter(self, state: InstanceState) -> None:
        if not self._state.may_become(state):
            raise AssertionError(f"instance {id_text(self.id)}: {self._state.value} cannot become {state.value}")
        self._state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        record = self.record()
        self._on_change(record)
        self._publish(
            InstanceStateChanged(
                self.id,
                self.profile_id,
                state,
                record.reason,
                record.load_seconds if state is InstanceState.READY else None,
            )
        )


async def _first(waited: Awaitable[object], exited: asyncio.Task[int]) -> bool:
    """Wait for one of two; whether it was the first of them and the process still lives."""
    task = asyncio.ensure_future(waited)
    try:
        await asyncio.wait({task, exited}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    return not exited.done()


def _why_not_ready(failure: BaseException) -> tuple[str, str]:
    if isinstance(failure, ForeignServer):
        return "address-foreign", "Another program answers at the server's address."
    return "readiness-failed", f"It says that it is healthy, but cannot be asked about itself: {failure!r}"


def _failure_document(failure: Failure | None) -> dict[str, object] | None:
    if failure is None:
        return None
    return {"reason": failure.reason, "message": failure.message, "last_lines": list(failure.last_lines)}
