"""The supervisor owns the instances: who wants one started or stopped asks here, and nowhere else."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.errors import InstanceNotRunning, ProfileBusy
from app.events import Event
from app.identifiers import id_text
from app.instances.demand import Demand
from app.instances.facts import InstanceDegraded
from app.instances.fallback import Fallback
from app.instances.instance import Instance
from app.instances.launcher import Launcher, Waiting
from app.instances.lease import Lease
from app.instances.lives import Lives
from app.instances.needs import Listeners
from app.instances.recovery import Recovery
from app.instances.residency import Refuse
from app.instances.residents import others_of
from app.instances.restarts import Restarts
from app.instances.room import Room, RoomFinder, refusal
from app.instances.roster import Roster
from app.instances.state import InstanceState, InstanceStateChanged
from app.instances.surroundings import Surroundings
from app.instances.turns import Turn, Turns
from app.instances.wishes import Wish, Wishes
from app.launch.check import LaunchCheck
from app.launch.circumstances import OtherLaunches
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile


class Supervisor:
    """Starts, stops and lends instances; at most one that is not terminal for each profile.

    `tell` are those who hear of every life.
    """

    def __init__(
        self,
        catalog: ProfileCatalog,
        check: LaunchCheck,
        surroundings: Surroundings,
        tell: Listeners,
    ) -> None:
        self._catalog = catalog
        self._publish = publish = tell.publish
        self.roster = Roster(surroundings.logs_dir, lambda profile_id: self._demand.queued(profile_id))  # noqa: PLW0108 - it comes later
        # Planning and registering happen under one lock: a launch is planned against what the one before it took.
        self._launching = asyncio.Lock()
        self._wishes = Wishes(publish)
        self._restarts = Restarts(self.roster, self._wishes, publish)
        self._turns = Turns(surroundings.yield_after_seconds)
        self._lives = Lives(
            surroundings,
            self.roster,
            replace(tell, publish=self._tell),
            on_empty=self._turns.move,
            serving=lambda name: stored.profile.serving if (stored := catalog.find(name)) else None,
        )
        self._rooms = RoomFinder(check, self.roster.lives, surroundings.residency)
        self._launcher = Launcher(
            self._rooms,
            self.roster.lives,
            return_seconds=surroundings.return_seconds,
            publish=publish,
        )
        self._recovery = Recovery(surroundings.restart, self.start_alone, publish)
        self._fallback = Fallback(
            lambda name: self._restarts.begin(
                name, surroundings.drain_seconds, "fallback", lambda wish: self._begin(wish, may_evict=False)
            ),
            publish,
        )
        self._demand = Demand(
            lease=self.roster.lease,
            bring_up=self.bring_up,
            next_release=self.roster.next_release,
            serving=lambda profile_id: catalog.get(profile_id).profile.serving,
            queue_limit=surroundings.queue_limit,
        )

    # To show.

    def is_running(self, profile_id: str) -> bool:
        """Whether a life of the profile has not ended, or is about to begin."""
        life = self.roster.newest(profile_id)
        is_alive = life is not None and not life.state.is_terminal
        return is_alive or self._wishes.is_open(profile_id) or self._recovery.pending(profile_id) is not None

    def is_held_back(self, profile_id: str) -> bool:
        """Whether a request would be answered with an earlier failure instead of starting the profile."""
        return self._recovery.obstacle(profile_id, self._catalog.get(profile_id).revision) is not None

    def others(self, profile_id: str, gone: frozenset[int] = frozenset()) -> OtherLaunches:
        """What instances do to the memory that a launch of this profile would meet, as if those in `gone` had ended."""
        return others_of(self.roster.lives(), profile_id, gone)

    async def room(self, profile: LaunchProfile, revision: int) -> Room:
        """What a start of this profile would do now: the decision and the report. Changes nothing."""
        return await self._rooms.find(profile, revision)

    def status(self, profile_id: str) -> Mapping[str, Any]:
        """The read-only `status` of a profile."""
        life = self.roster.newest(profile_id)
        record = life.record() if life else None
        backoff_until = self._recovery.backoff_until(profile_id)
        given_up = self._recovery.given_up(profile_id)
        failure = f"{record.reason}: {record.failure['message']}" if record and record.failure else None
        return {
            "state": record.state.value if record else InstanceState.STOPPED.value,
            "instance_id": id_text(record.id) if record else None,
            "backoff_until": backoff_until.isoformat() if backoff_until else None,
            "last_failure": f"{failure} Given up: {given_up}." if failure and given_up else failure,
        }

    # To lend.

    def lease(self, profile_id: str, is_look: bool = False) -> Lease:
        """A hold on the profile's instance for one request. Raises ProfileNotRunning, or ProfileBusy.

        Who waits comes first. A look takes no turn of anybody, and needs none.
        """
        if (
            not is_look
            and self._demand.queued(profile_id)
            and (life := self.roster.newest(profile_id))
            and life.takes_requests
        ):
            raise ProfileBusy(f"requests wait for their turn with profile {profile_id!r}")
        return self.roster.lease(profile_id, is_look=is_look)

    async def lease_when_ready(self, profile_id: str, caller: str | None) -> Lease:
        """The same, waiting in a bounded queue for a profile that is busy or has to be started first.

        Callers take turns in it. Raises QueueFull, QueueTimedOut, LaunchRefused, InstanceFailed.
        """
        return await self._demand.lease_when_ready(profile_id, caller)

    async def bring_up(self, profile_id: str) -> Instance:
        """A ready instance of the profile, started for a request: idle instances of others may be ended for it.

        Waits through the pauses of the restart policy, and for room; a life that is restarted while it loads is
        followed by the next. Raises LaunchRefused, InstanceFailed, and ProfileNotRunning where it is stopped by hand.
        """
        with self._wishes.wish(profile_id) as wish:
            while True:
                revision = self._catalog.get(profile_id).revision
                if (pending := self._recovery.pending(profile_id, revision)) is not None:
                    await asyncio.wait({pending})
                wish.demand()
                self._recovery.admit(profile_id, self._catalog.get(profile_id).revision)
                seen = self._turns.moves
                life = await self._begin(wish, is_patient=True)
                state = await life.until(lambda state: state is InstanceState.READY or state.is_terminal)
                if state is InstanceState.READY:
                    if life.takes_requests:
                        return life
                    # It lets another profile pass first.
                    await self._turns.next_move(seen)

    # To change.

    async def start(self, profile_id: str, *, force: bool = False, is_patient: bool = False) -> tuple[Instance, bool]:
        """The running instance of the profile, or a new one (then True). Raises LaunchRefused with the report.

        `is_patient` waits where another instance is in the way that cannot go at this moment.
        """
        life = self.roster.newest(profile_id)
        if life is None or life.state.is_terminal:
            # A person asks: what failed before no longer counts.
            self._forgive(profile_id)
        with self._wishes.wish(profile_id) as wish:
            begun = await self._begin(wish, force=force, is_patient=is_patient)
        return begun, begun is not life

    async def start_alone(self, profile_id: str) -> Instance:
        """The same where no person and no request asks: nothing that runs is ended for it. Raises LaunchRefused."""
        with self._wishes.wish(profile_id) as wish:
            return await self._begin(wish, may_evict=False)

    async def _begin(
        self, wish: Wish, *, force: bool = False, may_evict: bool = True, is_patient: bool = False
    ) -> Instance:
        with self._turns.turn() as turn:
            while True:
                seen = self._turns.moves
                async with self._launching:
                    wish.demand()
                    life = self.roster.newest(wish.profile_id)
                    if life is not None and not life.state.is_terminal and not life.is_ending:
                        return life
                    if life is None or life.state.is_terminal:
                        outcome = await self._launch(wish, turn, force=force, may_evict=may_evict)
                        if isinstance(outcome, Instance):
                            return outcome
                        if not is_patient:
                            raise refusal(wish.profile_id, outcome.report)
                        blockers = [each for each in self.roster.lives() if each.id in outcome.instance_ids]
                    else:
                        # It is on its way out: its memory is free when it has ended.
                        blockers = []
                await turn.wait_for(blockers, seen)

    async def _launch(self, wish: Wish, turn: Turn, *, force: bool, may_evict: bool) -> Instance | Waiting:
        profile_id = wish.profile_id
        stored, fallback_reason = self._fallback.as_launched(self._catalog.get(profile_id))
        kept = self._turns.kept_from(turn)
        outcome = await self._launcher.room_for(stored, force=force, may_evict=may_evict, kept=kept)
        if isinstance(outcome, Waiting):
            return outcome
        # While it was checked, the profile may have gone (ProfileNotFound), or somebody stopped it.
        self._catalog.get(profile_id)
        wish.demand()
        return self._lives.begin(outcome, fallback_reason)

    def _tell(self, event: Event) -> None:
        """Pass on what an instance tells; its end is also for the restart policy, before anyone who waited for it."""
        self._publish(event)
        if isinstance(event, InstanceDegraded):
            life = self.roster.newest(event.profile_id)
            if life is not None and not self._wishes.is_closed:
                self._fallback.degraded(life, event.findings)
        if isinstance(event, InstanceStateChanged):
            self._turns.move()
            life = self.roster.newest(event.profile_id)
            is_newest = life is not None and life.id == event.instance_id
            if life is not None and is_newest and event.state.is_terminal and not self._wishes.is_closed:
                self._recovery.ended(life)

    def stop(self, profile_id: str, drain_seconds: float) -> Instance:
        """Ask the profile's instance to stop; a terminal one is returned as it is. Raises InstanceNotRunning.

        Starts that are on their way are withdrawn, and who waits for them is told.
        """
        self._recovery.clear(profile_id)
        withdrawn = self._wishes.withdraw(profile_id) + self._demand.withdraw(profile_id)
        self._turns.move()
        life = self.roster.newest(profile_id)
        if life is None:
            self._catalog.get(profile_id)
            more = "; the start that was on its way is given up" if withdrawn else ""
            raise InstanceNotRunning(f"profile {profile_id!r} has no instance to stop{more}", profile=profile_id)
        life.ask_to_stop(drain_seconds)
        return life

    async def restart(self, profile_id: str, drain_seconds: float, *, force: bool = False) -> asyncio.Task[Instance]:
        """Stop what runs, then start anew: a task that ends with the new instance.

        The check comes first: a profile that would be refused goes on serving as it is. Raises LaunchRefused.
        """
        stored = self._catalog.get(profile_id)
        with self._wishes.wish(profile_id) as wish:
            room = await self._rooms.find(stored.profile, stored.revision, force=force)
            if isinstance(room.decision, Refuse):
                raise refusal(profile_id, room.checked.report)
            wish.demand()
        self._forgive(profile_id)
        # It was told to go for this: where room has become scarce meanwhile, it waits for it.
        return self._restarts.begin(
            profile_id, drain_seconds, "restart", lambda wish: self._begin(wish, force=force, is_patient=True)
        )

    def _forgive(self, profile_id: str) -> None:
        self._recovery.clear(profile_id)
        self._fallback.clear(profile_id)

    def forget(self, profile_id: str) -> None:
        """The profile is gone: a later one of that id starts without its past."""
        self._forgive(profile_id)
        self.roster.forget(profile_id)

    def begin_closing(self) -> None:
        """Start nothing more, and tell those who wait for a profile; what is served goes on."""
        self._wishes.close()
        self._recovery.close()
        self._demand.close()
        self._turns.move()
        for life in self.roster.lives():
            if life.state in (InstanceState.STARTING, InstanceState.LOADING):
                life.ask_to_stop(0, "service-stopped")

    async def close(self, drain_seconds: float) -> None:
        """Stop every instance and wait until all are reaped."""
        self.begin_closing()
        for life in self.roster.lives():
            life.ask_to_stop(drain_seconds, "service-stopped")
        await self._lives.until_all_ended()
        self._restarts.close()
