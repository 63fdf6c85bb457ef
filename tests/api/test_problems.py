import json

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException

from app import errors, findings
from app.api import problems
from app.api.problems import openai_answer, problem, relay_answer, status_of
from app.launch.report import PlacementReport, Verdict
from app.proxy.endpoints import Dialect


def all_errors(kind: type[errors.PacelineError]) -> set[type[errors.PacelineError]]:
    return {kind} | {found for child in kind.__subclasses__() for found in all_errors(child)}


def test_every_situation_of_the_tree_has_a_status_of_its_own_or_of_its_family() -> None:
    bases = {errors.PacelineError, errors.ProfileError, errors.InstanceError, errors.RequestError}
    internal = {errors.SettingsInvalid, errors.DataFolderInUse}
    for kind in all_errors(errors.PacelineError) - bases - internal:
        if not kind.__module__.startswith("app.") or kind.__module__.startswith("app.cli"):
            continue
        made = kind.__new__(kind)
        made.message, made.details = "m", {}
        # Files of profiles are told by line, key files are the command line's, and a mistake of ours is one of ours.
        without = ("KeyFileUnwritable", "ProfileFileUnreadable", "Unforeseen")
        assert status_of(made) != 500 or kind.__name__ in without, kind


def test_a_problem_carries_its_typed_members() -> None:
    status, body = problem(errors.ModelFileMissing("gone", path="a.gguf"), "/profiles/x/check")
    assert status == 422
    assert body == {
        "type": "urn:paceline:problem:model-file-missing",
        "title": "model file missing",
        "status": 422,
        "detail": "gone",
        "instance": "/profiles/x/check",
        "code": "model-file-missing",
        "path": "a.gguf",
    }


@pytest.mark.parametrize(
    ("error", "status", "kind", "param"),
    [
        (errors.ModelUnknown("no"), 404, "invalid_request_error", "model"),
        (errors.ModelNotNamed("no"), 400, "invalid_request_error", "model"),
        (errors.ProfileNotRunning("no"), 503, "server_error", None),
        (errors.UpstreamFailed("no"), 502, "server_error", None),
        (errors.AccessDenied("no", status=401), 401, "authentication_error", None),
        (errors.AccessDenied("no", status=403), 403, "permission_error", None),
        (errors.BodyTooLarge("no"), 413, "invalid_request_error", None),
    ],
)
def test_the_openai_envelope(error: errors.PacelineError, status: int, kind: str, param: str | None) -> None:
    answer = openai_answer(error)
    assert answer.status == status
    body = json.loads(answer.body)["error"]
    assert (body["type"], body["param"], body["message"]) == (kind, param, "no")
    assert body["code"] == error.code.replace("-", "_")
    assert (b"retry-after" in dict(answer.headers)) == (status == 503)


def refused_for(*rules: str) -> errors.LaunchRefused:
    found = [findings.error(rule, "no", overridable=rule.endswith("memory")) for rule in rules]
    return errors.LaunchRefused("no", PlacementReport(Verdict.REFUSED, "", [], [], {}, [], {}, {}, found, [], {}))


@pytest.mark.parametrize(
    ("error", "status", "stays"),
    [
        (refused_for("device-memory"), 503, False),
        (refused_for("target-unreadable"), 503, True),
        (refused_for("device-memory", "target-unreadable"), 503, True),
        (errors.InstanceFailed("no", reason="bad-model", last_lines=[]), 502, True),
        (errors.InstanceFailed("no", reason="address-in-use", last_lines=[]), 502, False),
        (errors.EngineNotFound("no"), 503, True),
        (errors.QueueTimedOut("no"), 429, False),
        (errors.ProfileNotRunning("no"), 503, False),
    ],
)
def test_clients_are_told_whether_to_ask_again(error: errors.PacelineError, status: int, stays: bool) -> None:
    answer = openai_answer(error)
    headers = dict(answer.headers)
    assert answer.status == status
    assert headers.get(b"x-should-retry") == (b"false" if stays else None)
    assert headers.get(b"retry-after") == (None if stays or status == 502 else b"5")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.ModelUnknown("no"), 404, "not_found_error"),
        (errors.BodyInvalid("no"), 400, "invalid_request_error"),
        (errors.BodyTooLarge("no"), 413, "request_too_large"),
        (errors.QueueFull("no"), 429, "rate_limit_error"),
        (errors.ProfileNotRunning("no"), 503, "api_error"),
        (errors.AccessDenied("no", status=401), 401, "authentication_error"),
    ],
)
def test_the_envelope_of_anthropic(error: errors.PacelineError, status: int, kind: str) -> None:
    answer = relay_answer(error, Dialect.ANTHROPIC)
    assert json.loads(answer.body) == {"type": "error", "error": {"type": kind, "message": "no"}}
    assert (answer.status, answer.headers) == (status, openai_answer(error).headers)
    assert relay_answer(error, Dialect.OPENAI) == openai_answer(error)


async def test_every_answer_of_the_control_api_is_a_problem_and_under_v1_an_envelope() -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/boom")
    async def boom() -> None:
        raise errors.ProfileNotFound("no profile 'x'")

    @app.get("/number")
    async def number(n: int) -> int:
        return n

    @app.get("/http")
    async def http() -> None:
        raise HTTPException(409, "taken")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        found = await client.get("/boom")
        assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
        invalid = await client.get("/number", params={"n": "x"})
        assert invalid.status_code == 422
        assert invalid.json()["problems"][0]["field"] == "n"
        assert (await client.get("/http")).json()["detail"] == "taken"
        assert (await client.get("/nowhere")).json()["code"] == "not-found"
        envelope = (await client.get("/v1/nowhere")).json()["error"]
        assert envelope["code"] == "not_found"


async def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes() -> None:
    app = FastAPI()
    problems.install(app)
    router = APIRouter()

    @router.get("/things/{name}")
    async def read(name: str) -> str:
        return name

    @router.delete("/things/{name}")
    async def delete(name: str) -> str:
        return name

    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        refused = await client.post("/things/one")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, DELETE")
        assert refused.json()["code"] == "method-not-allowed"


async def test_a_body_that_cannot_be_read_is_one_situation_however_it_is_found_out() -> None:
    app = FastAPI()
    problems.install(app)

    @app.post("/numbers")
    async def numbers(given: list[int]) -> int:
        return sum(given)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        for body in (b"[1", b"[1]x", b"\xff", b"[" * 100_000):
            refused = await client.post("/numbers", content=body, headers={"content-type": "application/json"})
            assert (refused.status_code, refused.json()["code"]) == (400, "body-invalid"), body[:9]
            assert refused.json()["detail"].startswith("the body is not JSON: "), body[:9]


async def test_half_a_character_can_be_repeated() -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/half")
    async def half() -> None:
        raise errors.ProfileNotFound("no profile '\ud800'", profile_id="\ud800")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/half")
        assert (answer.status_code, answer.json()["profile_id"]) == (404, "\ud800")
