"""Keys where they matter: a client that may use one profile, and secrets that must not be found anywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from cli.paceline_command import paceline
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service, running_service, served_process, settings_for

ADMIN = "configured-marker-key-0123456789"
WRONG = "wrong-marker-key-0123456789"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    """A service with keys, on which one profile runs and another one is."""
    settings = settings_for(tmp_path_factory.mktemp("keyed"), tiny.dense_target.parent, admin_key=ADMIN)
    with running_service(settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        serving = {"aliases": ["org/allowed"]}
        for profile_id, more in (("allowed", {"serving": serving}), ("other", {})):
            service.add({"id": profile_id, "target": {"path": "dense.gguf"}, "context": {"threads": 1}, **more})
        service.start("allowed")
        yield service
        service.stop("allowed")


def make(service: Service, **wanted: Any) -> str:
    answer = service.client.post("/keys", json=wanted)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


def client_with(service: Service, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.base_url}/v1", api_key=key, max_retries=0, timeout=DEADLINE_SECONDS)


def test_the_openai_client_with_a_key_for_one_profile(keyed: Service) -> None:
    with client_with(keyed, make(keyed, name="chat", profiles=["allowed"])) as client:
        assert [model.id for model in client.models.list()] == ["allowed", "org/allowed", "auto"]
        raw = client.completions.with_raw_response.create(model="org/allowed", prompt="hello", max_tokens=4)
        assert raw.parse().choices[0].finish_reason == "length"
        row = keyed.row_of(raw.headers["x-request-id"])
        assert (row["client"], row["outcome"], row["profile_id"]) == ("chat", "completed", "allowed")

        with pytest.raises(openai.PermissionDeniedError) as refused:
            client.completions.create(model="other", prompt="hello")
        assert "the key 'chat' may use allowed only" in refused.value.message
        row = keyed.row_of(refused.value.response.headers["x-request-id"])
        assert (row["client"], row["outcome"], row["status_code"]) == ("chat", "rejected", 403)
        with pytest.raises(openai.NotFoundError) as unknown:
            client.completions.create(model="nobody", prompt="hello")
        assert "other" not in unknown.value.message
    # The profile was not started for somebody who may not use it.
    assert keyed.state("other") == "stopped"


def test_a_key_for_all_profiles_and_the_one_of_the_settings(keyed: Service) -> None:
    with client_with(keyed, make(keyed, name="all")) as client:
        assert {model.id for model in client.models.list()} == {"allowed", "org/allowed", "other", "auto"}
    assert keyed.row(keyed.complete("allowed"))["client"] == "configured"


def test_the_official_client_understands_a_wrong_key(keyed: Service) -> None:
    with client_with(keyed, "sk-wrong") as client, pytest.raises(openai.AuthenticationError, match="not known"):
        client.completions.create(model="allowed", prompt="hello")


def test_a_service_with_keys_in_its_database_may_listen_beyond_loopback(tiny: TinyModels, tmp_path: Path) -> None:
    here = settings_for(tmp_path, tiny.dense_target.parent)
    with running_service(here) as service:
        secret = make(service, name="boss", kind="admin")
    everywhere = settings_for(tmp_path, tiny.dense_target.parent, host="0.0.0.0", metrics_public=True)
    with running_service(everywhere) as service:
        assert service.client.get("/profiles").status_code == 401
        assert service.client.get("/profiles", headers={"x-api-key": secret}).status_code == 200
        kept = service.client.delete("/keys/boss", headers={"x-api-key": secret})
        assert (kept.status_code, kept.json()["code"]) == (409, "key-needed")


@pytest.mark.slow
def test_secrets_are_found_nowhere(tiny: TinyModels, tmp_path: Path) -> None:
    """Everything that the service says and writes, at its most talkative, is searched for every secret.

    Five seconds: a service and commands as processes of their own, since argument lists and logs are what is searched.
    """
    file = tmp_path / "admin-key"
    file.write_text(ADMIN)
    settings = settings_for(tmp_path, tiny.dense_target.parent, admin_key_file=file, log_level="debug")
    said: list[str] = []
    secrets = {ADMIN, WRONG}
    with served_process(settings) as served:
        service, client = served.service, served.service.client
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        made = [make(service, name="second", kind="admin"), make(service, name="web"), make(service, name="gone")]
        secrets |= {*made, *(secret.split("_", 2)[2] for secret in made)}
        client.delete("/keys/gone")
        service.add({"id": "d", "target": {"path": "dense.gguf"}, "context": {"threads": 1}})
        instance = service.start("d")
        service.complete("d")
        service.stream("d")

        paths = ("/v1/completions", "/v1/nothing", "/keys", "/nothing", "/profiles/d/check")
        known = [(key, path) for key in made[:2] for path in paths]
        # Few enough that waiting for their refusals takes a second.
        unknown = [(key, path) for key in (made[2], WRONG, f"pl_000000000000_{WRONG}") for path in paths[2:3]]
        for key, path in (*known, *unknown):
            for header in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key, "Authorization": "Basic x"}):
                said.append(
                    _said(client.post(path, json={"model": "d", "prompt": "x", "max_tokens": 4}, headers=header))
                )
        said.append(_said(client.post("/keys", json={"name": "web", "secret": 1})))
        for path in (
            *("/keys", "/instances", f"/instances/{instance['id']}", f"/instances/{instance['id']}/diagnosis"),
            *("/profiles/d/logs", "/metrics", "/requests", "/profiles", "/version", "/ready", "/openapi.json"),
        ):
            answer = client.get(path)
            assert answer.status_code == 200, path
            said.append(_said(answer))
        with client.stream("GET", "/events", params={"after": 0}) as events:
            lines = events.iter_lines()
            while "request.finished" not in (line := next(lines)):
                said.append(line)
            said.append(next(lines))
        environment = {"PACELINE_URL": service.base_url, "PACELINE_ADMIN_KEY": made[0]}
        for arguments in (("keys", "list"), ("keys", "revoke", "nobody")):
            shown = paceline(*arguments, cwd=tmp_path, settings=environment)
            said += [shown.out, shown.err]
        processes = [psutil.Process(served.process.pid)]
        processes += processes[0].children(recursive=True)
        assert len(processes) > 1
        said += [" ".join(process.cmdline()) for process in processes]
        said += [str(process.environ()) for process in processes[1:]]
        service.stop("d")
    said.append("".join(served.log))
    assert "has shown 6 wrong keys" in said[-1]
    said += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file() and path != file]
    assert len("".join(said)) > 50_000
    assert [text[:300] for text in said if any(secret in text for secret in secrets)] == []


def _said(answer: httpx.Response) -> str:
    return f"{answer.headers} {answer.text}"
