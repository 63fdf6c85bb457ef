"""The gate of a whole service: keys, their rights, wrong ones, and pages of browsers."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service, running_service, settings_for

ADMIN = "the-admin-key-of-these-tests"
PAGE = "https://chat.example"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    """A service with a key of its settings, and one page that may call it."""
    settings = settings_for(
        tmp_path_factory.mktemp("keyed"), tiny.dense_target.parent, admin_key=ADMIN, cors_origins=(PAGE,)
    )
    with running_service(settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        yield service


@pytest.fixture
def inference(keyed: Service) -> Iterator[httpx.Client]:
    """A client with an inference key."""
    made = keyed.client.post("/keys", json={"name": "web"}).json()
    headers = {"x-api-key": made["secret"]}
    with httpx.Client(base_url=keyed.base_url, headers=headers, timeout=DEADLINE_SECONDS, trust_env=False) as client:
        yield client
    keyed.client.delete("/keys/web")


def test_an_inference_key_reaches_inference_and_nothing_else(keyed: Service, inference: httpx.Client) -> None:
    assert inference.get("/v1/models").status_code == 200
    assert inference.post("/v1/completions", json={"model": "none", "prompt": "x"}).status_code == 404
    assert inference.get("/v1/nothing").status_code == 404
    assert inference.post("/tokenize", json={"model": "none", "content": "x"}).status_code == 404
    assert inference.get("/upstream/none/slots").status_code == 404
    before = keyed.metric("paceline_access_refused_total", reason="not-permitted") or 0
    refused = [
        inference.get("/profiles"),
        inference.post("/keys", json={"name": "mine", "kind": "admin"}),
        inference.get("/openapi.json"),
        inference.get("/v1"),
        inference.post("/lora-adapters", json=[]),
        inference.post("/upstream/none/slots/0?action=erase"),
    ]
    assert {answer.status_code for answer in refused} == {403}
    assert refused[0].json()["code"] == "access-denied"
    assert refused[0].json()["reason"] == "not-permitted"
    assert keyed.metric("paceline_access_refused_total", reason="not-permitted") == before + len(refused)


def test_without_a_key_nothing_opens_and_each_side_hears_it_in_its_form(keyed: Service) -> None:
    with httpx.Client(base_url=keyed.base_url, trust_env=False) as nobody:
        control, relayed = nobody.get("/instances"), nobody.post("/v1/chat/completions", json={})
        assert nobody.get("/health").status_code == 200
    assert (control.status_code, relayed.status_code) == (401, 401)
    assert control.headers["www-authenticate"] == relayed.headers["www-authenticate"] == "Bearer"
    assert control.json()["reason"] == "missing"
    assert relayed.json()["error"]["type"] == "authentication_error"
    row = keyed.row(relayed)
    assert (row["outcome"], row["status_code"], row["client"], row["profile_id"]) == ("rejected", 401, None, None)


def test_nobody_without_a_key_fills_the_table(tiny: TinyModels, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, tiny.dense_target.parent, admin_key=ADMIN)
    with running_service(settings) as service:
        begun = time.monotonic()
        for _ in range(100):
            assert service.client.post("/v1/chat/completions", json={"model": "none"}).status_code == 401
        gained = int(time.monotonic() - begun) + 1
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        # Whoever shows a key leaves a row for each, and when it is there those before it are.
        for _ in range(70):
            unknown = service.client.post("/v1/chat/completions", json={"model": "none"})
        assert service.row(unknown)["status_code"] == 404
        rows = service.client.get("/requests", params={"outcome": "rejected", "limit": 200}).json()["items"]
        statuses = [row["status_code"] for row in rows]
        assert statuses.count(404) == 70
        assert 60 <= statuses.count(401) <= 60 + gained
        assert service.metric("paceline_access_refused_total", reason="missing") == 100


def test_a_revoked_key_is_refused_at_once(keyed: Service) -> None:
    made = keyed.client.post("/keys", json={"name": "short-lived"}).json()
    shown = {"Authorization": f"Bearer {made['secret']}"}
    assert keyed.client.get("/v1/models", headers=shown).status_code == 200
    assert keyed.client.delete("/keys/short-lived").status_code == 204
    answer = keyed.client.get("/v1/models", headers=shown)
    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == "the key is not known"


def test_wrong_keys_wait_and_right_ones_do_not(tiny: TinyModels, tmp_path: Path) -> None:
    """A quarter of a second is the behaviour: it is what whoever tries keys shall wait."""
    settings = settings_for(tmp_path, tiny.dense_target.parent, admin_key=ADMIN)

    numbers = itertools.count(1)

    async def tried(base_url: str) -> tuple[float, float, int]:
        async with httpx.AsyncClient(base_url=base_url, timeout=DEADLINE_SECONDS, trust_env=False) as http:

            async def wrong() -> float:
                begun = time.perf_counter()
                # Whom it says to come from makes no difference.
                said = {"x-api-key": "wrong", "x-forwarded-for": f"192.0.2.{next(numbers)}"}
                answer = await http.get("/profiles", headers=said)
                assert answer.status_code == 401
                return time.perf_counter() - begun

            for _ in range(5):
                await wrong()
            slowed = asyncio.create_task(wrong())
            passed = 0
            begun = time.perf_counter()
            while not slowed.done():
                assert (await http.get("/profiles", headers={"x-api-key": ADMIN})).status_code == 200
                passed += 1
            return await slowed, time.perf_counter() - begun, passed

    with running_service(settings) as service:
        slowed_seconds, seconds, passed = asyncio.run(tried(service.base_url))
        assert slowed_seconds >= 0.25
        # Those with the right key went on meanwhile, one after another.
        assert passed >= 2, (passed, seconds)
        assert service.metric("paceline_access_refused_total", reason="unknown") == 6


def test_a_page_that_is_named_may_ask_first_and_read(keyed: Service) -> None:
    with httpx.Client(base_url=keyed.base_url, trust_env=False) as page:
        asked = page.options(
            "/v1/chat/completions",
            headers={
                "Origin": PAGE,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
            },
        )
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert "x-stainless-lang" in asked.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in asked.headers
        refused = page.get("/v1/models", headers={"Origin": PAGE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    read = keyed.client.get("/v1/models", headers={"Origin": PAGE})
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "X-Request-Id" in read.headers["access-control-expose-headers"]


def test_other_pages_are_told_nothing(keyed: Service) -> None:
    for origin in ("https://evil.example", "https://chat.example.evil.example", "null"):
        asked = keyed.client.options("/v1/models", headers={"Origin": origin, "Access-Control-Request-Method": "GET"})
        assert asked.status_code == 400
        read = keyed.client.get("/v1/models", headers={"Origin": origin})
        assert "access-control-allow-origin" not in {*asked.headers, *read.headers}


def test_without_the_setting_there_is_no_cors(service: Service) -> None:
    asked = service.client.options("/v1/models", headers={"Origin": PAGE, "Access-Control-Request-Method": "GET"})
    read = service.client.get("/v1/models", headers={"Origin": PAGE})
    assert not [name for name in (*asked.headers, *read.headers) if name.startswith("access-control-")]
    assert service.client.post("/keys", json={"name": "x"}, headers={"Origin": PAGE}).status_code == 403


def test_an_inference_key_changes_no_engine(inference: httpx.Client) -> None:
    """404: the gate has let it pass, and there is no such profile."""
    for path in ("/props?model=none", "/upstream/none/", "/upstream/none/slots"):
        assert inference.get(path).status_code == 404
    for path in ("/completion", "/upstream/none/v1/chat/completions"):
        assert inference.post(path, json={"model": "none"}).status_code == 404
    for path in ("/props?model=none", "/lora-adapters?model=none", "/upstream/none/slots/0?action=erase"):
        refused = inference.post(path, json={})
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
    assert inference.delete("/upstream/none/v1/stream").status_code == 403


def test_clients_of_anthropic_hear_of_a_missing_key_in_their_form(keyed: Service) -> None:
    with httpx.Client(base_url=keyed.base_url, trust_env=False) as nobody:
        answer = nobody.post("/v1/messages", json={})
    assert answer.status_code == 401
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "authentication_error"
