"""A service of a few routes, for commands that follow it: lives are values, a test says what they print and do."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI
from fixtures.lives import life
from fixtures.served_app import ServedApp, served

from app.api.event_feed import EventFeed
from app.api.events import router as events_router
from app.api.log_stream import router as log_router
from app.api.problems import install
from app.api.resources import InstanceResource
from app.errors import InstanceNotFound, ProfileNotFound
from app.events import Event, EventBus
from app.identifiers import id_text
from app.instances.facts import InstanceLoadProgressed
from app.instances.output_feeds import OutputFeeds
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState, InstanceStateChanged


@dataclass
class SmallService:
    """What it knows. `findings` is what a diagnosis of any instance finds."""

    profiles: list[str] = field(default_factory=lambda: ["gemma"])
    lives: dict[str, InstanceRecord] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    earlier_lines: list[str] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self.bus = EventBus()
        self.events = EventFeed(self.lives.get)
        self.events.subscribe(self.bus)
        self.outputs = OutputFeeds()
        self.app = FastAPI()
        install(self.app)
        self.app.include_router(events_router(self.events.feed))
        self.app.include_router(log_router(self.outputs, self.demand))
        self._add_routes()

    def demand(self, profile_id: str) -> None:
        if profile_id not in self.profiles:
            raise ProfileNotFound(f'there is no profile "{profile_id}"', profile_id=profile_id)

    def _status(self, profile_id: str) -> dict[str, Any]:
        record = self.lives.get(profile_id)
        return {"id": profile_id, "status": {"instance_id": id_text(record.id) if record else None}}

    def _add_routes(self) -> None:
        @self.app.get("/profiles")
        async def profiles() -> Any:
            self.looks += 1
            return {"items": [self._status(profile_id) for profile_id in self.profiles]}

        @self.app.get("/profiles/{profile_id}")
        async def profile(profile_id: str) -> Any:
            self.demand(profile_id)
            return self._status(profile_id)

        @self.app.get("/profiles/{profile_id}/logs")
        async def logs(profile_id: str, tail: int) -> Any:
            self.demand(profile_id)
            if not self.earlier_lines:
                raise InstanceNotFound(f"profile {profile_id!r} has not been started")
            return {"items": self.earlier_lines[-tail:]}

        @self.app.get("/instances")
        async def instances(profile: str | None = None) -> Any:
            return {
                "items": [InstanceResource.of(one) for one in self.lives.values() if profile in (None, one.profile_id)]
            }

        @self.app.get("/instances/{instance_id}")
        async def instance(instance_id: str) -> InstanceResource:
            for record in self.lives.values():
                if id_text(record.id) == instance_id:
                    return InstanceResource.of(record)
            raise InstanceNotFound(f"no instance {instance_id!r}")

        @self.app.get("/instances/{instance_id}/diagnosis")
        async def diagnosis(instance_id: str) -> Any:
            await instance(instance_id)
            return {"items": self.findings, "next_cursor": None}

    def enter(self, state: InstanceState, profile_id: str = "gemma", **changes: Any) -> None:
        """The life of a profile enters a state; on its event loop."""
        record = self.lives.get(profile_id) or life(profile_id=profile_id)
        self.lives[profile_id] = replace(record, state=state, **changes)
        self.bus.publish(InstanceStateChanged(record.id, profile_id, state, changes.get("reason")))

    def progress(self, fraction: float) -> Event:
        """A load comes on."""
        event = InstanceLoadProgressed(self.lives["gemma"].id, "gemma", "weights", fraction, 2.0)
        self.bus.publish(event)
        return event

    def end_streams(self) -> None:
        self.events.close()
        self.outputs.close()

    @contextlib.contextmanager
    def running(self, port: int = 0) -> Iterator[ServedApp]:
        """Served on a port of its own, or on this one."""
        with served(self.app, self.end_streams, port=port) as server:
            yield server
