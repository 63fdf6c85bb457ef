"""GET /events, over a real bus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes.finished_requests import DRAFTED, finished, rejected
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.lives import INSTANCE_ID, life
from fixtures.no_requests import NoneActive
from fixtures.opened_stream import OpenedStream, opened
from msgspec import structs

from app.api.event_feed import EventFeed, EventName
from app.api.events import router
from app.api.problems import install
from app.api.requests import RequestResource
from app.api.requests import router as requests_router
from app.api.resources import InstanceResource
from app.database import Database
from app.events import EventBus
from app.findings import Fix, warning
from app.identifiers import id_text
from app.instances.facts import FindingRaised, InstanceDegraded, InstanceLoadProgressed, ResidencyEvicted
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState, InstanceStateChanged
from app.telemetry.recorder import Recorder

FINDING = warning("draft-on-host", "It drafts on the host.", fixes=[Fix("Move it", {"speculation": {"draft": {}}}, 5)])
SHOWN_FINDING = {
    "rule": "draft-on-host", "severity": "warning", "message": "It drafts on the host.", "expected": "",
    "observed": "", "evidence": "", "overridable": False,
    "fixes": [{"description": "Move it", "patch": {"speculation": {"draft": {}}}, "effect_bytes": 5}],
}  # fmt: skip


@dataclass
class Stage:
    """An application with the events of a bus, and the lives that it knows."""

    bus: EventBus = field(default_factory=EventBus)
    lives: dict[str, InstanceRecord] = field(default_factory=dict)
    capacity: int = 100
    silence_seconds: float = 15
    clock_seconds: float = 1_760_000_000

    def __post_init__(self) -> None:
        self.events = EventFeed(self.lives.get, capacity=self.capacity, clock=lambda: self.clock_seconds)
        self.events.subscribe(self.bus)
        self.app = FastAPI()
        install(self.app)
        self.app.include_router(router(self.events.feed, silence_seconds=self.silence_seconds))

    def state(self, state: InstanceState, **changes: object) -> None:
        """A life enters a state, and everybody is told."""
        self.lives["gemma"] = life(state=state, **changes)
        self.bus.publish(InstanceStateChanged(INSTANCE_ID, "gemma", state))

    @asynccontextmanager
    async def open(self, query: str = "", **headers: str) -> AsyncIterator[OpenedStream]:
        async with opened(self.app, f"/events{query}", **headers) as stream:
            yield stream


async def test_events_carry_their_resource_as_it_was_when_they_happened() -> None:
    stage = Stage()
    async with stage.open() as stream:
        stage.state(InstanceState.LOADING, ready_at=None)
        stage.state(InstanceState.READY)
        first, second = await stream.take(2)
    assert (first.name, second.name) == ("instance.state", "instance.state")
    assert first.json["state"] == "loading"
    assert second.json == InstanceResource.of(life()).model_dump(mode="json")
    assert second.id == first.id + 1


async def test_a_stream_is_not_to_be_held_back_on_its_way() -> None:
    async with Stage().open() as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-cache"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.comments == 1


async def test_every_kind_of_event_has_its_shape() -> None:
    stage = Stage(lives={"gemma": life()})
    instance = InstanceResource.of(life()).model_dump(mode="json")
    other = INSTANCE_ID + 1
    async with stage.open() as stream:
        stage.bus.publish(InstanceLoadProgressed(INSTANCE_ID, "gemma", "weights", 0.25, 1.5))
        stage.bus.publish(InstanceDegraded(INSTANCE_ID, "gemma", ["draft-on-host"], [FINDING]))
        stage.bus.publish(ResidencyEvicted("gemma", [other], ["idle"], None))
        stage.bus.publish(FindingRaised("gemma", "autostart", FINDING))
        # Of a life that is known no more an event says what it knows itself.
        stage.bus.publish(InstanceStateChanged(other, "gemma", InstanceState.FAILED, "exited"))
        told = [(event.name, event.json) for event in await stream.take(5)]
    assert told == [
        (
            "instance.load_progress",
            {**instance, "load_progress": {"stage": "weights", "fraction": 0.25, "seconds": 1.5}},
        ),
        ("instance.degraded", {**instance, "degradations": ["draft-on-host"], "findings": [SHOWN_FINDING]}),
        (
            "residency.evicted",
            {
                "profile_id": "gemma",
                "evicted_instance_ids": [id_text(other)],
                "evicted_profile_ids": ["idle"],
                "freed_seconds": None,
            },
        ),
        ("finding", {"profile_id": "gemma", "source": "autostart", "finding": SHOWN_FINDING}),
        ("instance.state", {"id": id_text(other), "profile_id": "gemma", "state": "failed", "reason": "exited"}),
    ]


async def test_a_request_is_told_as_its_row_will_be(tmp_path: Path) -> None:
    """Told and recorded are two ways to one shape."""
    stage = Stage()
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    recorder = Recorder(database)
    happened = [
        finished(0),
        rejected(1),
        finished(2, requested_model="half \ud83d", report=structs.replace(DRAFTED, error="server_error")),
    ]
    async with stage.open() as stream:
        for event in happened:
            recorder.on_request_finished(event)
            stage.bus.publish(event)
        told = await stream.take(3)
    await recorder.flush()
    rows = FastAPI()
    rows.include_router(requests_router(database, NoneActive()))
    items = TestClient(rows).get("/requests").json()["items"]
    database.close()
    assert [event.name for event in told] == ["request.finished"] * 3
    assert [event.json for event in told] == items[::-1]
    assert set(told[0].json) == set(RequestResource.model_fields)


async def test_a_client_that_comes_back_gets_what_it_has_not_seen() -> None:
    stage = Stage()
    async with stage.open() as stream:
        stage.state(InstanceState.STARTING)
        seen = await stream.next()
    stage.state(InstanceState.LOADING)
    stage.state(InstanceState.READY)
    # Where both are given the header is younger: a browser repeats the address it was given.
    for query, headers in (("", {"last_event_id": str(seen.id)}), (f"?after={seen.id}", {})):
        async with stage.open(query, **headers) as stream:
            assert [event.json["state"] for event in await stream.take(2)] == ["loading", "ready"]
    async with stage.open("?after=0", last_event_id=str(seen.id + 1)) as stream:
        assert (await stream.next()).json["state"] == "ready"


async def test_what_is_gone_is_told() -> None:
    stage = Stage(capacity=2)
    async with stage.open() as stream:
        stage.state(InstanceState.STARTING)
        seen = await stream.next()
    for state in (InstanceState.LOADING, InstanceState.READY, InstanceState.DRAINING, InstanceState.STOPPING):
        stage.state(state)
    async with stage.open(last_event_id=str(seen.id)) as stream:
        missed, draining, _ = await stream.take(3)
    assert (missed.name, missed.json, missed.id) == ("missed", {"missed": 2}, seen.id + 2)
    assert draining.json["state"] == "draining"


async def test_numbers_go_on_over_a_restart_of_the_service() -> None:
    earlier = Stage()
    async with earlier.open() as stream:
        earlier.state(InstanceState.READY)
        seen = await stream.next()
    later = Stage(clock_seconds=earlier.clock_seconds + 1)
    later.state(InstanceState.LOADING)
    async with later.open(last_event_id=str(seen.id)) as stream:
        missed, loading = await stream.take(2)
    assert (missed.name, missed.json) == ("missed", {"missed": None})
    assert loading.json["state"] == "loading"
    assert loading.id > seen.id


async def test_only_what_was_asked_for() -> None:
    stage = Stage()
    async with stage.open("?types=finding,%20instance.state") as stream:
        stage.bus.publish(finished())
        stage.state(InstanceState.READY)
        stage.bus.publish(ResidencyEvicted("gemma", [], [], None))
        stage.bus.publish(FindingRaised("gemma", "restart", FINDING))
        assert [event.name for event in await stream.take(2)] == ["instance.state", "finding"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?types=instance.stat", "types"),
        ("?types=,", "types"),
        ("?type=finding", "type"),
        ("?after=-1", "after"),
        ("?after=then", "after"),
    ],
)
def test_a_question_that_makes_no_sense_names_its_parameter(query: str, field: str) -> None:
    answer = TestClient(Stage().app).get(f"/events{query}")
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]
    bad = TestClient(Stage().app).get("/events", headers={"Last-Event-ID": "x"})
    assert [problem["field"].lower() for problem in bad.json()["problems"]] == ["last-event-id"]


async def test_signs_of_life_come_where_nothing_is_sent() -> None:
    stage = Stage(silence_seconds=0.02)
    async with stage.open("?types=finding") as stream:
        await stream.sign_of_life()
        # What a filter holds back is silence, too.
        stage.bus.publish(finished())
        await stream.sign_of_life()
        stage.bus.publish(FindingRaised("gemma", "restart", FINDING))
        assert (await stream.next()).name == "finding"


async def test_a_later_kind_of_event_needs_no_class_here() -> None:
    stage = Stage()
    async with stage.open("?types=tuning.progress") as stream:
        stage.events.tell(EventName.TUNING_PROGRESS, lambda: {"id": "x", "trials": 3})
        assert (await stream.next()).json == {"id": "x", "trials": 3}


async def test_streams_end_with_the_service() -> None:
    stage = Stage()
    async with stage.open() as stream:
        stage.state(InstanceState.READY)
        stage.events.close()
        assert [event.json["state"] for event in await stream.rest()] == ["ready"]
