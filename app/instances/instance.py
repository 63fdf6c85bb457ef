"""One life of one server process. Only `live` writes its state; DESIGN.md beside this file tells the whole story."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.errors import ProfileNotRunning
from app.events import Event
from app.findings import Finding
from app.identifiers import id_text
from app.instances.chronicle import Chronicle
from app.instances.diagnosis import diagnose
from app.instances.drain import Drain
from app.instances.facts import InstanceDegraded, InstanceLoadProgressed
from app.instances.fitness import unfit
from app.instances.hearing import Hearing
from app.instances.holds import Holds
from app.instances.lease import Lease
from app.instances.load import until_loaded
from app.instances.needs import InstanceNeeds
from app.instances.output import OutputLog
from app.instances.prepared import prepare
from app.instances.process import ServerProcess
from app.instances.readiness import Readiness
from app.instances.record import InstanceRecord
from app.instances.serving import End, until_over
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.waiting import first_of
from app.launch.report import Launch
from app.llama_server.flags import ListenAddress
from app.llama_server.log_lines import Failure, failure_of
from app.profiles.profile import Serving


class Instance:
    """A life: from about to exec to reaped. It happens once; a restart is a new instance. `story`,
    `holds` and `prepared` are to read.

    `followed_eviction` where instances were ended to make room for it; `fallback_reason` is the degradation for which
    it is launched without speculation.
    """

    def __init__(
        self,
        identifier: int,
        launch: Launch,
        address: ListenAddress,
        needs: InstanceNeeds,
        *,
        followed_eviction: bool = False,
        fallback_reason: str | None = None,
    ) -> None:
        self.id = identifier
        self.launch = launch
        self.followed_eviction = followed_eviction
        tell = needs.tell.begin_output(launch.profile.id, identifier)
        self.output = OutputLog(needs.logs_dir / f"{id_text(identifier)}.log", tell)
        self._needs = needs
        self.prepared = prepare(identifier, launch, address, needs.empty_folder)
        self.holds = Holds(asyncio.get_running_loop().time, needs.on_empty)
        self.story = Chronicle(identifier, launch, self.prepared.argv, fallback_reason)
        self._hearing = Hearing(self.output, launch)
        self._passing = 0
        self._drain = Drain(self.holds)
        self._stop_asked = asyncio.Event()
        self._changed = asyncio.Event()

    # What others read.

    @property
    def profile_id(self) -> str:
        """The profile that it serves."""
        return self.launch.profile.id

    @property
    def state(self) -> InstanceState:
        """Where it stands. To show; to start or stop something ask the supervisor."""
        return self.story.state

    @property
    def serving(self) -> Serving:
        """How its profile answers requests and when it may go: as the profile says now, not as it was launched."""
        return self._needs.serving(self.profile_id) or self.launch.profile.serving

    @property
    def is_ending(self) -> bool:
        """Whether it has been asked to stop, and has not ended yet."""
        return self._stop_asked.is_set() and not self.state.is_terminal

    @property
    def takes_requests(self) -> bool:
        """Whether it is READY, stays so, and lets nobody pass."""
        return self.state is InstanceState.READY and not self._passing and not self._stop_asked.is_set()

    @property
    def has_leases(self) -> bool:
        """Whether a request holds it."""
        return self.holds.count > 0

    @property
    def was_asked(self) -> bool:
        """Whether its end was asked for; what was not fit to serve was not."""
        return self._stop_asked.is_set() and self.story.verdict is None

    def record(self) -> InstanceRecord:
        """How it stands now, as a value."""
        return self.story.record(self.holds.count)

    async def until(self, reached: Callable[[InstanceState], bool]) -> InstanceState:
        """Wait until a state satisfies `reached`; every life ends, so ask for that too."""
        while not reached(self.state):
            await self._changed.wait()
        return self.state

    # What others ask for.

    def lease(self, *, is_look: bool = False) -> Lease:
        """A hold for one request. Raises ProfileNotRunning unless it takes any, ProfileBusy if full and no look."""
        if not self.takes_requests:
            state = InstanceState.DRAINING if self.state is InstanceState.READY else self.state
            raise ProfileNotRunning(
                f"profile {self.profile_id!r} is {state.value} and takes no requests now",
                profile=self.profile_id,
                state=state.value,
            )
        most = None if is_look else self.serving.max_concurrency
        return self.holds.take(self.prepared.upstream, self.prepared.context, most)

    def let_pass(self, others: bool) -> None:
        """Take no new requests, or again: another profile has waited long for its memory. Each of them tells both."""
        self._passing += 1 if others else -1

    def found(self, findings: Sequence[Finding]) -> None:
        """What a diagnosis finds now, while it serves. Told where the degradations are others than before."""
        before = self.story.degradations
        self.story.findings = findings
        if (after := self.story.degradations) != before:
            self._needs.tell.keep(self.record())
            self._needs.tell.publish(InstanceDegraded(self.id, self.profile_id, after, findings))

    def ask_to_stop(self, drain_seconds: float, reason: str | None = None) -> None:
        """Stop: let running requests finish for so long, then end the process. Asking again may shorten the wait.

        The first `reason` that is given is told; None where a person or a program asked.
        """
        if not self._stop_asked.is_set():
            self.story.stop_reason = reason
        self._drain.allow(drain_seconds)
        self._stop_asked.set()

    # The life.

    async def live(self) -> None:
        """Run the whole life; returns when the process is reaped and the state is terminal."""
        self._needs.tell.keep(self.record())
        self._needs.tell.publish(InstanceStateChanged(self.id, self.profile_id, self.state))
        try:
            self._process = await ServerProcess.start(self.prepared.argv, self.prepared.env, self._hear)
            self._needs.children.add(self.id, self._process.pid, self.prepared.argv)
        except (OSError, ValueError) as refusal:
            self._fail(Failure("engine-not-started", f"The engine could not be started: {refusal}"))
            return
        exited = self._process.exited
        self.story.pid = self._process.pid
        self._enter(InstanceState.LOADING)
        try:
            if await self._load(self._process, exited):
                await self._serve(self._process, exited)
        finally:
            if not exited.done():
                # Only a bug or a cancelled service comes here: never leave a child behind.
                self._process.kill()
                await asyncio.wait({exited})
            if not self.state.is_terminal:
                self._fail(Failure("internal-error", "The life of the instance broke; the service's log has it."))
            self.output.close()

    async def _load(self, process: ServerProcess, exited: asyncio.Task[int]) -> bool:
        """LOADING until READY (True) or a terminal state (False)."""
        outcome = await until_loaded(
            self.launch,
            self.prepared,
            process,
            self._stop_asked,
            self._hearing.load,
            self._needs.deadlines,
            self._progress,
        )
        if exited.done():
            self._exited(exited.result())
        elif isinstance(outcome, Failure):
            await self._give_up(process, outcome)
        elif outcome is None or self._stop_asked.is_set():
            await self._stop(process)
        else:
            return await self._accept(process, outcome)
        return False

    def _hear(self, line: str) -> None:
        """The engine printed a line."""
        measured = self._hearing.line(line, is_loading=self.state is not InstanceState.READY)
        if measured is None:
            return
        self.story.measured = measured
        if self.story.fallback_reason is None:
            # Without the speculation of its revision it takes less than a later launch of that will.
            self._needs.tell.measured(self.launch, measured)
        if self.state is InstanceState.READY:
            # Its health was told before its last lines were read.
            self.found(diagnose(self.story.evidence()))
            self._judge(unfit(self.launch.profile, self.story.findings))

    def _progress(self, event: Event) -> None:
        if isinstance(event, InstanceLoadProgressed):
            seconds = round(event.seconds, 3)
            self.story.load_progress = {"stage": event.stage, "fraction": event.fraction, "seconds": seconds}
        self._needs.tell.publish(event)

    async def _accept(self, process: ServerProcess, readiness: Readiness) -> bool:
        self.story.readiness = readiness
        findings = diagnose(self.story.evidence())
        if (verdict := unfit(self.launch.profile, findings)) is not None:
            self.story.findings = findings
            await self._give_up(process, verdict)
            return False
        self.story.ready_at = datetime.now(UTC)
        self.holds.begin_idle()
        self._enter(InstanceState.READY)
        self.found(findings)
        return True

    async def _serve(self, process: ServerProcess, exited: asyncio.Task[int]) -> None:
        """READY until the end."""
        client = self.prepared.upstream.client
        over: Failure | End = End.IDLE
        while over is End.IDLE and not self._stop_asked.is_set():
            over = await until_over(
                self.holds, client, self._needs.canary, self._stop_asked, exited, lambda: self.serving
            )
            if over is End.IDLE and not self.has_leases:
                self.ask_to_stop(0, "idle-timeout")
        self._judge(over if isinstance(over, Failure) else None)
        if exited.done():
            self._exited(exited.result())
            return
        self._enter(InstanceState.DRAINING)
        await first_of(self._drain.wait(), exited)
        if exited.done():
            self._exited(exited.result())
            return
        await self._stop(process)

    def _judge(self, verdict: Failure | None) -> None:
        """End it, where it is not fit to serve and nobody has asked for its end."""
        if verdict is not None and not self._stop_asked.is_set():
            self.story.verdict = verdict
            self.ask_to_stop(0, verdict.reason)

    async def _stop(self, process: ServerProcess) -> None:
        """STOPPING until reaped. Whoever holds connections has closed them when `_enter` returns."""
        self._enter(InstanceState.STOPPING)
        if self.story.ready_at is not None and self.story.verdict is None:
            await first_of(self._needs.tell.last_look(self.prepared, self.has_leases), process.exited)
        exit_code = await self._end(process)
        if self.story.verdict is not None:
            self._fail(replace(self.story.verdict, last_lines=tuple(self.output.tail(20))), exit_code)
            return
        self.story.exit_code = exit_code
        self.story.stopped_at = datetime.now(UTC)
        self._enter(InstanceState.STOPPED)

    async def _give_up(self, process: ServerProcess, failure: Failure) -> None:
        """End a process that lives but shall not serve."""
        exit_code = await self._end(process)
        self._fail(replace(failure, last_lines=tuple(self.output.tail(20))), exit_code)

    async def _end(self, process: ServerProcess) -> int:
        return await process.end(self._needs.deadlines.terminate_seconds, self._needs.deadlines.kill_seconds)

    def _exited(self, exit_code: int) -> None:
        self._fail(failure_of(exit_code, self.output.tail(400)), exit_code)

    def _fail(self, failure: Failure, exit_code: int | None = None) -> None:
        self.story.failure = failure
        self.story.exit_code = exit_code
        self.story.stopped_at = datetime.now(UTC)
        self._enter(InstanceState.FAILED)

    def _enter(self, state: InstanceState) -> None:
        if not self.state.may_become(state):
            raise AssertionError(f"instance {id_text(self.id)}: {self.state.value} cannot become {state.value}")
        self.story.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        record = self.record()
        self._needs.tell.keep(record)
        load_seconds = record.load_seconds if state is InstanceState.READY else None
        self._needs.tell.publish(InstanceStateChanged(self.id, self.profile_id, state, record.reason, load_seconds))
