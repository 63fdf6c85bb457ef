"""Starting, stopping and deleting where they meet each other. The engine is the executable fake."""

import asyncio
import socket
import threading
from pathlib import Path

import httpx
import pytest
from fixtures.faulty_engine import FAKE_ENGINE, Faults, reached, service_with_faults
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, InFlight, eventually, running_service, settings_for, wait_for_end

from app.errors import DataFolderInUse
from app.main import create_app


def test_a_profile_cannot_go_while_it_starts(faults: Faults) -> None:
    faults.profile("going", {"load_seconds": 0.3})
    client = faults.service.client
    answers: list[httpx.Response] = []
    starting = threading.Thread(
        target=lambda: answers.append(client.post("/profiles/going/start", params={"wait": True}))
    )
    starting.start()
    deleted = client.delete("/profiles/going")
    starting.join(DEADLINE_SECONDS)
    if deleted.status_code == 204:  # it was first
        assert answers[0].status_code == 404
        assert not [one for one in client.get("/instances").json()["items"] if one["profile_id"] == "going"]
    else:
        assert deleted.status_code == 409
        assert answers[0].status_code == 200
        faults.service.stop("going")
        assert client.delete("/profiles/going").status_code == 204


def test_a_restart_that_the_check_refuses_leaves_the_running_one_alone(faults: Faults) -> None:
    faults.profile("steady", {})
    running = faults.service.start("steady")
    client = faults.service.client
    client.patch("/profiles/steady", json={"target": {"path": "gone.gguf"}})
    refused = client.post("/profiles/steady/restart", params={"wait": True})
    assert refused.status_code == 409
    assert [found["rule"] for found in refused.json()["report"]["findings"] if found["severity"] == "error"] == [
        "target-unreadable"
    ]
    assert faults.service.newest("steady")["id"] == running["id"]
    assert faults.service.complete("steady").status_code == 200
    faults.service.stop("steady")


def test_a_restart_is_a_new_instance(faults: Faults) -> None:
    faults.profile("again", {})
    first = faults.service.start("again")
    answer = faults.service.client.post("/profiles/again/restart", params={"wait": True})
    assert answer.status_code == 200
    second = answer.json()
    assert second["id"] > first["id"]
    assert second["state"] == "ready"
    assert faults.service.instance(first["id"])["state"] == "stopped"
    # Without waiting the answer comes at once, and shows the life that ends.
    at_once = faults.service.client.post("/profiles/again/restart")
    assert (at_once.status_code, at_once.json()["id"]) == (202, second["id"])
    eventually(lambda: True if faults.service.newest("again")["id"] > second["id"] else None)
    reached(faults.service, "again", "ready")
    faults.service.stop("again")


def test_who_has_a_name_first_is_not_disturbed_by_who_comes_later(faults: Faults) -> None:
    faults.profile("prod", {}, serving={"aliases": ["gpt"]})
    faults.service.start("prod")
    faults.profile("intruder", {}, serving={"aliases": ["gpt", "prod"]})
    refused = faults.service.client.post("/profiles/intruder/start")
    assert refused.status_code == 409
    assert "alias-taken" in [found["rule"] for found in refused.json()["report"]["findings"]]
    assert faults.service.client.post("/profiles/prod/restart", params={"wait": True}).status_code == 200
    models = faults.service.client.get("/v1/models").json()["data"]
    assert [(one["id"], one["profile"]) for one in models if one["id"] in ("gpt", "prod")] == [
        ("prod", "prod"),
        ("gpt", "prod"),
    ]
    faults.service.stop("prod")


def test_asking_again_shortens_a_drain(faults: Faults) -> None:
    faults.profile("drained", {"chunk_interval_seconds": 0.2})
    faults.service.start("drained")
    request = InFlight(faults.service, {"model": "drained", "prompt": "x", "max_tokens": 500, "stream": True})
    assert request.has_begun()
    client = faults.service.client
    assert client.post("/profiles/drained/stop", params={"drain_seconds": 600}).json()["state"] in ("ready", "draining")
    reached(faults.service, "drained", "draining")
    ended = client.post("/profiles/drained/stop", params={"drain_seconds": 0.05, "wait": True})
    assert (ended.status_code, ended.json()["state"]) == (200, "stopped")
    request.outcome()


def test_what_never_ran_cannot_be_stopped_and_what_has_ended_stays_ended(faults: Faults) -> None:
    faults.profile("idle", {})
    client = faults.service.client
    assert client.post("/profiles/idle/stop").status_code == 409
    assert client.post("/profiles/nobody/stop").status_code == 404
    faults.service.start("idle")
    assert faults.service.stop("idle")["state"] == "stopped"
    assert client.post("/profiles/idle/stop").status_code == 200


def test_a_profile_that_is_made_anew_has_no_past(faults: Faults) -> None:
    faults.profile("phoenix", {"fail_during_load": {"stderr": ["out of memory"], "exit_code": 1}})
    client = faults.service.client
    assert client.post("/profiles/phoenix/start", params={"wait": True}).status_code == 502
    assert client.get("/profiles/phoenix").json()["status"]["last_failure"].startswith("out-of-memory")
    client.delete("/profiles/phoenix")
    faults.profile("phoenix", {})
    assert client.get("/profiles/phoenix").json()["status"]["last_failure"] is None


@pytest.mark.parametrize("execs", [True, False])
def test_an_engine_behind_a_script_serves_and_ends_with_it(execs: bool, tiny: TinyModels, tmp_path: Path) -> None:
    """People name wrapper scripts; one that forgets `exec` must not leave the server behind."""
    script = tmp_path / "llama-server"
    script.write_text(f'#!/bin/sh\n{"exec " if execs else ""}{FAKE_ENGINE} "$@"\n')
    script.chmod(0o755)
    with service_with_faults(tiny, engine=str(script)) as wrapped:
        wrapped.profile("w", {})
        instance = wrapped.service.start("w")
        assert wrapped.service.complete("w").status_code == 200
        (started,) = wrapped.facts("w", "started")
        assert (started["pid"] == instance["pid"]) is execs
        wrapped.service.stop("w")
        assert wait_for_end(started["pid"])


def test_a_second_service_on_the_same_folder_does_not_start(tiny: TinyModels, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, tiny.dense_target.parent)
    with running_service(settings):
        second = create_app(settings).api

        async def start() -> None:
            async with second.router.lifespan_context(second):
                raise AssertionError("it started")

        with pytest.raises(DataFolderInUse):
            asyncio.run(start())


def test_foreign_pages_are_refused_and_bodies_bounded(faults: Faults) -> None:
    client = faults.service.client
    foreign = client.post("/profiles/any/start", headers={"Origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "access-denied")
    renamed = client.get("/v1/models", headers={"Host": "evil.example"})
    assert (renamed.status_code, renamed.json()["error"]["type"]) == (403, "permission_error")
    assert client.get("/health", headers={"Host": "localhost:1"}).status_code == 200
    large = b'{"profile": "' + b"x" * (5 << 20) + b'"}'
    assert client.post("/check", content=large, headers={"Content-Type": "application/json"}).status_code == 413


def test_a_client_that_offers_http2_keeps_its_body(faults: Faults) -> None:
    """Java's client does so with every request."""
    url = httpx.URL(faults.service.base_url)
    body = b'{"id": "h2c", "target": {"path": "x.gguf"}}'
    head = (
        "POST /profiles HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    ).encode()
    with socket.create_connection((url.host, url.port or 80), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(head + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert faults.service.client.get("/profiles/h2c").status_code == 200
