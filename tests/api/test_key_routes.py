"""/keys over HTTP: the routes on a real book."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.access.key import KeyKind
from app.access.key_book import KeyBook
from app.api import keys, problems
from app.database import Database
from app.errors import ProfileNotFound

ADMIN = {"name": "boss", "kind": "admin"}


def demand_profile(profile_id: str) -> None:
    if profile_id != "gemma":
        raise ProfileNotFound(f'there is no profile "{profile_id}"', profile_id=profile_id)


class Service:
    def __init__(self, database: Database) -> None:
        self.book = KeyBook(database, configured=None, may_be_empty=True)
        self.book.load()
        self.app = FastAPI()
        problems.install(self.app)
        self.app.include_router(keys.router(self.book, demand_profile))

    def client(self, address: str = "127.0.0.1") -> httpx.AsyncClient:
        """A client whose requests come from there."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=(address, 5))
        return httpx.AsyncClient(transport=transport, base_url="http://paceline")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}")
    database.migrate()
    database.start()
    yield Service(database)
    database.close()


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


async def test_a_key_is_made_listed_and_revoked(service: Service) -> None:
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    async with service.client() as http:
        assert (await http.get("/keys")).json() == {"items": [], "next_cursor": None}
        assert (await http.post("/keys", json=ADMIN)).status_code == 201
        wanted = {"name": "web", "profiles": ["gemma"], "expires_at": expires_at.isoformat()}
        answer = await http.post("/keys", json=wanted)
        assert answer.status_code == 201
        assert answer.headers["cache-control"] == "no-store"
        made = answer.json()
        secret = made.pop("secret")
        assert service.book.recognise(secret.encode()).kind is KeyKind.INFERENCE
        assert made["kind"] == "inference"
        assert made["profiles"] == ["gemma"]
        assert datetime.fromisoformat(made["expires_at"]) == expires_at
        assert made["created_at"].endswith("Z")

        listed = await http.get("/keys")
        assert [key["name"] for key in listed.json()["items"]] == ["boss", "web"]
        assert secret not in listed.text
        assert "secret" not in listed.json()["items"][1]
        assert listed.json()["items"][1] | {"last_used_at": None} == made

        gone = await http.delete("/keys/web")
        assert (gone.status_code, gone.content) == (204, b"")
        problem(await http.delete("/keys/web"), 404, "key-not-found")


async def test_what_cannot_be_made_says_which_field(service: Service) -> None:
    async with service.client() as http:
        assert problem(await http.post("/keys", json={"name": "web"}), 422, "key-invalid")["field"] == "kind"
        await http.post("/keys", json=ADMIN)
        problem(await http.post("/keys", json=ADMIN), 409, "key-exists")
        problem(await http.post("/keys", json={"name": "w", "profiles": ["gamma"]}), 404, "profile-not-found")
        for wanted, field in (
            ({"name": "w", "right": "all"}, "right"),
            ({"name": "w", "kind": "root"}, "kind"),
            ({"kind": "admin"}, "name"),
            ({"name": "w", "expires_at": "2999-01-01T00:00:00"}, "expires_at"),
            ({"name": "w", "secret": "mine"}, "secret"),
        ):
            body = problem(await http.post("/keys", json=wanted), 422, "request-invalid")
            assert [each["field"] for each in body["problems"]] == [field]
        past = {"name": "w", "expires_at": "2001-01-01T00:00:00Z"}
        assert problem(await http.post("/keys", json=past), 422, "key-invalid")["field"] == "expires_at"


async def test_the_last_admin_key_stays_while_there_are_others(service: Service) -> None:
    async with service.client() as http:
        await http.post("/keys", json=ADMIN)
        await http.post("/keys", json={"name": "web"})
        problem(await http.delete("/keys/boss"), 409, "key-needed")


@pytest.mark.parametrize("address", ["192.168.1.7", "2001:db8::1"])
async def test_nobody_from_elsewhere_makes_the_first_key(service: Service, address: str) -> None:
    async with service.client(address) as elsewhere:
        body = problem(await elsewhere.post("/keys", json=ADMIN), 403, "access-denied")
        assert "paceline keys make" in body["detail"]
        assert service.book.is_empty
        async with service.client("::1") as here:
            assert (await here.post("/keys", json=ADMIN)).status_code == 201
        assert (await elsewhere.post("/keys", json={"name": "web"})).status_code == 201
