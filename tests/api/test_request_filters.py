"""What is refused in the query of paths that list recorded requests, or sum them up."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fixtures.no_requests import NoneActive

from app.api import events, requests
from app.api.event_feed import ToldEvent
from app.api.problems import install
from app.database import Database
from app.feed import Feed


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("filters")
    database = Database(f"sqlite:///{folder / 'paceline.db'}")
    database.migrate()
    app = FastAPI()
    install(app)
    feed: Feed[ToldEvent] = Feed(4)
    feed.close()
    app.include_router(requests.router(database, NoneActive()))
    app.include_router(events.router(feed))
    yield TestClient(app)
    database.close()


ONCE = [
    *(("/requests", name) for name in ("profile", "state", "limit", "until")),
    *(("/requests/export", name) for name in ("format", "outcome")),
    *(("/stats", name) for name in ("group_by", "since")),
    *(("/events", name) for name in ("types", "after")),
]
VALUES = {
    "state": "active", "limit": "5", "until": "2026-01-31T12:00:00Z", "since": "2026-01-31T12:00:00Z",
    "format": "csv", "outcome": "rejected", "group_by": "profile", "types": "finding", "after": "0",
}  # fmt: skip


@pytest.mark.parametrize(("path", "name"), ONCE)
def test_a_parameter_that_comes_twice_is_refused_by_its_name(client: TestClient, path: str, name: str) -> None:
    value = VALUES.get(name, "a")
    assert client.get(path, params={name: value}).status_code == 200
    for other in (value, "other"):
        answer = client.get(path, params=[(name, value), (name, other)])
        assert (answer.status_code, answer.json()["code"]) == (422, "query-invalid"), answer.text
        assert answer.json()["problems"] == [{"field": name, "message": "it comes more than once, and takes one value"}]


@pytest.mark.parametrize("path", ["/requests", "/requests/export", "/stats", "/events"])
def test_an_unknown_parameter_is_refused_with_the_names_that_there_are(client: TestClient, path: str) -> None:
    answer = client.get(path, params=[("profiles", "a"), ("profiles", "b")])
    assert answer.json()["problems"][0]["field"] == "profiles"
    assert "unknown parameter; known are " in answer.json()["detail"]
