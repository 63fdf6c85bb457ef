"""GET /profiles/{id}/logs/stream."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.opened_stream import OpenedStream, Told, opened

from app.api.log_stream import router
from app.api.problems import install
from app.errors import ProfileNotFound
from app.identifiers import id_text
from app.instances.output import OutputLog
from app.instances.output_feeds import OutputFeeds


@dataclass
class Stage:
    """An application with the output of the profile `gemma`."""

    folder: Path
    clock_seconds: float = 1_760_000_000
    profiles: frozenset[str] = frozenset({"gemma", "other"})
    logs: list[OutputLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outputs = OutputFeeds(lambda: self.clock_seconds)
        self.app = FastAPI()
        install(self.app)
        self.app.include_router(router(self.outputs, self._demand))

    def _demand(self, profile_id: str) -> None:
        if profile_id not in self.profiles:
            raise ProfileNotFound(f'there is no profile "{profile_id}"')

    def begin(self, instance_id: int, profile_id: str = "gemma") -> OutputLog:
        log = OutputLog(self.folder / f"{instance_id}.log", self.outputs.begin(profile_id, instance_id))
        self.logs.append(log)
        return log

    @asynccontextmanager
    async def open(self, query: str = "", **headers: str) -> AsyncIterator[OpenedStream]:
        async with opened(self.app, f"/profiles/gemma/logs/stream{query}", **headers) as stream:
            yield stream


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for log in stage.logs:
        log.close()


def shown(events: list[Told]) -> list[str]:
    """Lines as they are, other events by their name and value."""
    return [
        event.data if event.name == "message" else f"{event.name} {next(iter(event.json.values()))}" for event in events
    ]


def life(number: int) -> str:
    return f"instance {id_text(number)}"


async def test_a_profile_that_never_ran_is_waited_for_and_followed_over_its_lives(stage: Stage) -> None:
    async with stage.open() as stream:
        first = stage.begin(1)
        first.append("one")
        stage.begin(7, "other").append("not ours")
        first.append("")
        second = stage.begin(2)
        second.append("two \r half")
        events = await stream.take(5)
    assert shown(events) == [life(1), "one", "", life(2), "two \n half"]
    numbers = [event.id for event in events if event.id]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


async def test_the_newest_life_comes_first(stage: Stage) -> None:
    stage.begin(1).append("earlier")
    log = stage.begin(2)
    for text in "abc":
        log.append(text)
    for query, expected in (
        ("", [life(2), "a", "b", "c", "new"]),
        ("?tail=2", [life(2), "b", "c", "new"]),
        ("?tail=0", [life(2), "new"]),
    ):
        async with stage.open(query) as stream:
            log.append("new")
            assert shown(await stream.take(len(expected))) == expected
        log = stage.begin(2)
        for text in "abc":
            log.append(text)


async def test_a_client_that_comes_back_goes_on_where_it_was(stage: Stage) -> None:
    log = stage.begin(1)
    log.append("a")
    async with stage.open() as stream:
        seen = (await stream.take(2))[1]
    log.append("b")
    stage.begin(2).append("c")
    for query, headers in (("", {"last_event_id": str(seen.id)}), (f"?after={seen.id}", {})):
        async with stage.open(query, **headers) as stream:
            assert shown(await stream.take(3)) == ["b", life(2), "c"]


async def test_lines_that_are_gone_are_counted_and_it_is_said_whose_the_others_are(stage: Stage) -> None:
    log = stage.begin(1)
    log.append("a")
    async with stage.open() as stream:
        seen = (await stream.take(2))[1]
    log = stage.begin(2)
    for number in range(2005):
        log.append(str(number))
    async with stage.open(last_event_id=str(seen.id)) as stream:
        assert shown(await stream.take(3)) == ["missed 6", life(2), "5"]
    async with stage.open() as stream:
        assert shown(await stream.take(2)) == [life(2), "5"]


async def test_a_restarted_service_says_that_lines_may_be_missing(stage: Stage) -> None:
    stage.begin(1).append("a")
    async with stage.open() as stream:
        seen = (await stream.take(2))[1]
    later = replace(stage, clock_seconds=stage.clock_seconds + 1)
    later.begin(2).append("b")
    async with later.open(last_event_id=str(seen.id)) as stream:
        events = await stream.take(3)
    assert shown(events) == ["missed None", life(2), "b"]
    assert events[-1].id > seen.id


async def test_streams_end_with_the_profile_and_with_the_service(stage: Stage) -> None:
    async with stage.open() as stream:
        stage.begin(1).append("last")
        stage.outputs.forget("gemma")
        assert shown(await stream.rest()) == [life(1), "last"]
    async with stage.open() as stream:
        stage.outputs.close()
        assert await stream.rest() == []
    # Also where nobody has asked for it before.
    async with opened(stage.app, "/profiles/other/logs/stream") as stream:
        assert await stream.rest() == []


def test_a_profile_that_is_none_is_no_stream(stage: Stage) -> None:
    answer = TestClient(stage.app).get("/profiles/nobody/logs/stream")
    assert answer.status_code == 404
    assert answer.json()["code"] == "profile-not-found"
