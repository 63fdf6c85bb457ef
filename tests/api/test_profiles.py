"""/profiles and /presets over HTTP."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api import presets, problems, profiles
from app.database import Database
from app.profiles.catalog import ProfileCatalog
from app.profiles.presets import PRESETS
from app.profiles.profile import parse_profile

ONE = {"id": "one", "target": {"path": "models/a.gguf"}}
STOPPED = {"state": "stopped", "instance_id": None, "backoff_until": None, "last_failure": None}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Service:
    """The routes on a real catalog, and what the test says that runs."""

    def __init__(self, database: Database) -> None:
        self.statuses: dict[str, dict[str, Any]] = {}
        self.catalog = ProfileCatalog(database, lambda _: None, in_use=self.statuses.__contains__)
        self.catalog.load()
        self.app = FastAPI()
        problems.install(self.app)
        self.app.include_router(profiles.router(self.catalog, lambda name: self.statuses.get(name, STOPPED)))
        self.app.include_router(presets.router())


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}")
    database.migrate()
    database.start()
    yield Service(database)
    database.close()


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://paceline") as client:
        yield client


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["code"] == code
    return body


async def test_an_empty_list(http) -> None:
    answer = await http.get("/profiles")
    assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})


async def test_create_then_read(http) -> None:
    made = await http.post("/profiles", json=ONE)
    assert made.status_code == 201
    assert made.headers["location"] == "/profiles/one"
    assert made.headers["etag"] == '"1"'
    body = made.json()
    assert body["revision"] == 1
    assert body["status"] == {**STOPPED, "managed_by": None}
    assert body["context"]["batch_size"] == 2048
    read = await http.get("/profiles/one")
    assert (read.status_code, read.json(), read.headers["etag"]) == (200, body, '"1"')
    assert (await http.get("/profiles")).json()["items"] == [body]


async def test_what_was_read_can_be_written_back_and_changes_nothing(http) -> None:
    body = (await http.post("/profiles", json=ONE)).json()
    body["status"] = {"state": "ready", "invented": True}
    body["revision"] = 99
    again = await http.put("/profiles/one", json=body)
    assert (again.status_code, again.json()["revision"]) == (200, 1)
    copy = await http.post("/profiles", json={**body, "id": "two"})
    assert (copy.status_code, copy.json()["revision"]) == (201, 1)


async def test_the_status_is_the_instances_word(http, service) -> None:
    await http.post("/profiles", json=ONE)
    service.statuses["one"] = {
        "state": "failed",
        "instance_id": "0011223344556677",
        "backoff_until": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "last_failure": "out-of-memory",
    }
    assert (await http.get("/profiles/one")).json()["status"] == {
        "state": "failed",
        "instance_id": "0011223344556677",
        "managed_by": None,
        "backoff_until": "2026-01-02T03:04:05Z",
        "last_failure": "out-of-memory",
    }


async def test_creating_twice_conflicts(http) -> None:
    await http.post("/profiles", json=ONE)
    refused(await http.post("/profiles", json=ONE), 409, "profile-exists")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"id": "one"}, "target"),
        ({**ONE, "id": "Not An Id"}, "id"),
        ({**ONE, "colour": "red"}, "colour"),
        ({**ONE, "context": {"sice": 1}}, "context.sice"),
        ([], ""),
        ("text", ""),
    ],
)
async def test_fields_that_do_not_validate_are_named(http, document: Any, field: str) -> None:
    body = refused(await http.post("/profiles", json=document), 422, "profile-invalid")
    assert [problem["field"] for problem in body["problems"]] == [field]
    assert (await http.get("/profiles")).json()["items"] == []


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"id": NaN}', b"[" * 100_000], ids=lambda raw: repr(raw)[:12])
async def test_a_body_that_is_not_json_is_refused(http, raw: bytes) -> None:
    answer = await http.post("/profiles", content=raw, headers={"Content-Type": "application/json"})
    refused(answer, 400, "body-invalid")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"])
async def test_a_type_that_a_foreign_page_could_send_is_refused(http, kind: str) -> None:
    answer = await http.post("/profiles", content=b"{}", headers={"Content-Type": kind})
    assert "application/json" in refused(answer, 400, "body-invalid")["detail"]


async def test_a_huge_body_is_refused(http) -> None:
    huge = {**ONE, "description": "x" * (1024 * 1024)}
    refused(await http.post("/profiles", json=huge), 413, "body-too-large")


async def test_put_makes_what_is_absent_and_replaces_what_is_there(http) -> None:
    made = await http.put("/profiles/one", json={"target": {"path": "a"}, "context": {"size": 4096}})
    assert (made.status_code, made.headers["location"]) == (201, "/profiles/one")
    replaced = await http.put("/profiles/one", json=ONE)
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert "location" not in replaced.headers
    assert replaced.json()["context"]["size"] is None


async def test_the_body_names_the_profile_of_the_path(http) -> None:
    body = refused(await http.put("/profiles/two", json=ONE), 422, "profile-invalid")
    assert body["problems"][0]["field"] == "id"
    await http.post("/profiles", json=ONE)
    refused(await http.patch("/profiles/one", json={"id": "two"}), 422, "profile-invalid")


@pytest.mark.parametrize(
    "kind", ["application/merge-patch+json", "application/json", "application/json; charset=utf-8"]
)
async def test_patch_merges(http, kind: str) -> None:
    await http.post("/profiles", json={**ONE, "context": {"size": 4096, "slots": 2}})
    patch = b'{"context": {"size": null, "batch_size": 512}, "status": {"state": "x"}, "revision": 7}'
    answer = await http.patch("/profiles/one", content=patch, headers={"Content-Type": kind})
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    context = answer.json()["context"]
    assert (context["size"], context["slots"], context["batch_size"]) == (None, 2, 512)


async def test_patch_takes_no_other_type(http) -> None:
    await http.post("/profiles", json=ONE)
    answer = await http.patch("/profiles/one", content=b"[]", headers={"Content-Type": "application/json-patch+json"})
    assert "merge-patch" in refused(answer, 400, "body-invalid")["detail"]


async def test_a_patch_nested_beyond_reason_is_refused(http) -> None:
    await http.post("/profiles", json=ONE)
    for depth in range(300, 1000, 20):
        patch = '{"serving": {"set_parameters": ' + '{"a": ' * depth + "1" + "}" * depth + "}}"
        answer = await http.patch("/profiles/one", content=patch, headers=MERGE)
        assert answer.status_code in (400, 422), answer.text
    assert (await http.get("/profiles/one")).json()["revision"] == 1


async def test_a_stale_etag_is_refused_and_a_fresh_one_taken(http) -> None:
    await http.post("/profiles", json=ONE)
    stale = {"If-Match": '"1"'}
    await http.patch("/profiles/one", json={"description": "theirs"})
    for answer in (
        await http.put("/profiles/one", json=ONE, headers=stale),
        await http.patch("/profiles/one", json={"description": "mine"}, headers=stale),
        await http.delete("/profiles/one", headers=stale),
    ):
        assert refused(answer, 412, "profile-changed")["revision"] == 2
    fresh = await http.patch("/profiles/one", json={"description": "mine"}, headers={"If-Match": '"2"'})
    assert fresh.headers["etag"] == '"3"'
    assert (await http.delete("/profiles/one", headers={"If-Match": '"3"'})).status_code == 204


@pytest.mark.parametrize(
    ("if_match", "status"),
    [("*", 200), ('"9", "1"', 200), ('W/"1"', 200), ('"abc"', 412), ("1", 412), ('"11"', 412), ('"9"', 412)],
)
async def test_forms_of_if_match(http, if_match: str, status: int) -> None:
    await http.post("/profiles", json=ONE)
    answer = await http.patch("/profiles/one", json={"description": "x"}, headers={"If-Match": if_match})
    assert answer.status_code == status


async def test_if_match_on_what_is_absent_makes_nothing(http) -> None:
    for if_match in ("*", '"1"'):
        refused(await http.put("/profiles/one", json=ONE, headers={"If-Match": if_match}), 412, "profile-changed")
    refused(await http.get("/profiles/one"), 404, "profile-not-found")


async def test_delete_and_what_stays(http) -> None:
    await http.post("/profiles", json=ONE)
    answer = await http.delete("/profiles/one")
    assert (answer.status_code, answer.content) == (204, b"")
    refused(await http.get("/profiles/one"), 404, "profile-not-found")
    refused(await http.delete("/profiles/one"), 404, "profile-not-found")
    assert [entry["revision"] for entry in (await http.get("/profiles/one/revisions")).json()["items"]] == [1]
    assert (await http.post("/profiles", json=ONE)).headers["etag"] == '"2"'


async def test_a_running_profile_is_not_deleted(http, service) -> None:
    await http.post("/profiles", json=ONE)
    service.statuses["one"] = {**STOPPED, "state": "ready"}
    refused(await http.delete("/profiles/one"), 409, "profile-in-use")
    assert (await http.get("/profiles/one")).json()["status"]["state"] == "ready"


async def test_history_newest_first(http) -> None:
    await http.post("/profiles", json=ONE)
    await http.patch("/profiles/one", json={"description": "second"})
    body = (await http.get("/profiles/one/revisions")).json()
    assert body["next_cursor"] is None
    assert [(entry["revision"], entry["profile"]["description"]) for entry in body["items"]] == [(2, "second"), (1, "")]
    assert body["items"][0]["created_at"].endswith("Z")
    refused(await http.get("/profiles/none/revisions"), 404, "profile-not-found")


async def test_a_near_miss_is_answered_with_the_right_name(http) -> None:
    await http.post("/profiles", json={**ONE, "id": "qwen3-mtp"})
    body = refused(await http.get("/profiles/qwen3-mpt"), 404, "profile-not-found")
    assert body["near"] == ["qwen3-mtp"]


async def test_a_profile_of_a_file_is_shown_and_left_alone(http, service) -> None:
    await service.catalog.declare(parse_profile(ONE), "a.yaml")
    assert (await http.get("/profiles/one")).json()["status"]["managed_by"] == "a.yaml"
    for answer in (
        await http.put("/profiles/one", json={**ONE, "description": "x"}),
        await http.patch("/profiles/one", json={"description": "x"}),
        await http.delete("/profiles/one"),
    ):
        assert refused(answer, 409, "profile-managed")["file"] == "a.yaml"


async def test_the_presets(http) -> None:
    body = (await http.get("/presets")).json()
    assert body["next_cursor"] is None
    assert [item["id"] for item in body["items"]] == [preset.id for preset in PRESETS]
    assert set(body["items"][0]) == {"id", "description", "when", "profile"}
    hybrid = next(item for item in body["items"] if item["id"] == "dspark-hybrid")
    assert hybrid["profile"]["placement"]["cpu_moe_layers"] == "all"


async def test_openapi_documents_bodies_without_dangling_references(http) -> None:
    document = (await http.get("/openapi.json")).json()
    create = document["paths"]["/profiles"]["post"]
    schema = create["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["id", "target"]
    assert schema["properties"]["context"]["properties"]["slots"]["default"] == 1
    assert (
        "application/merge-patch+json" in document["paths"]["/profiles/{profile_id}"]["patch"]["requestBody"]["content"]
    )

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(value) for value in node.values()))
        return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known
