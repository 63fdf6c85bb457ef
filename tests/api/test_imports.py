"""POST /profiles/import on the whole service."""

from typing import Any

import pytest
from fixtures.tiny_models import TinyModels
from service import Service


def imported(service: Service, command: Any, *, save: bool = False) -> dict[str, Any]:
    answer = service.client.post("/profiles/import", params={"save": save}, json={"command": command})
    assert answer.status_code == (201 if save else 200), answer.text
    body: dict[str, Any] = answer.json()
    return body


def refused(service: Service, body: Any, status: int, **query: Any) -> dict[str, Any]:
    answer = service.client.post("/profiles/import", params=query, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    return problem


def test_a_dry_run_answers_a_whole_profile_and_stores_nothing(service: Service) -> None:
    [entry] = imported(service, "llama-server -m dense.gguf --draft-max 4 -np 1 -c 512 -ngl 0")["profiles"]
    profile, notes = entry["profile"], entry["notes"]
    assert profile["id"] == "dense"
    assert profile["speculation"]["draft_tokens_max"] == 4
    assert profile["context"]["batch_size"] == 2048
    assert {
        "kind": "renamed",
        "said": "--draft-max 4",
        "message": "llama-server no longer has --draft-max and would exit; --spec-draft-n-max says it today",
        "field": "speculation.draft_tokens_max",
        "value": 4,
    } in notes
    assert service.client.get("/profiles/dense").status_code == 404
    report = service.client.post("/check", json={"profile": profile})
    assert report.status_code == 200


def test_files_in_the_model_folders_are_looked_into(service: Service) -> None:
    words = ["llama-server", "-m", "dense.gguf", "-md", "dspark.gguf", "-np", "1"]
    [entry] = imported(service, words)["profiles"]
    assert entry["profile"]["speculation"]["method"] == "dspark"
    # The length that the tiny model says it was trained for.
    assert entry["profile"]["context"]["size"] == 4096
    by_flag = {note["said"]: note["message"] for note in entry["notes"]}
    assert "infers the method" in by_flag["--spec-type"]
    outside = imported(service, "llama-server -m dense.gguf -md /etc/passwd")["profiles"][0]
    assert outside["profile"]["speculation"]["method"] == "draft"


def test_what_is_saved_can_be_started(service: Service, tiny: TinyModels) -> None:
    line = f"llama-server -m {tiny.dense_target} -a from-notes,Its/Name -c 512 -np 1 -t 1 --port 9000 --temp 0"
    imported(service, line, save=True)
    stored = service.client.get("/profiles/from-notes").json()
    assert stored["revision"] == 1
    assert stored["serving"]["aliases"] == ["Its/Name"]
    again = refused(service, {"command": line}, 409, save=True)
    assert again["code"] == "profile-exists"
    service.start("from-notes")
    service.stop("from-notes")


def test_nothing_is_saved_of_two_when_one_exists(service: Service) -> None:
    imported(service, "llama-server -m dense.gguf -a second", save=True)
    both = "llama-server -m dense.gguf -a first\nllama-server -m dense.gguf -a second\n"
    refused(service, {"command": both}, 409, save=True)
    assert service.client.get("/profiles/first").status_code == 404


def test_two_commands_on_one_file_are_two_profiles(service: Service) -> None:
    found = imported(service, "llama-server -m dense.gguf\nllama-server -m dense.gguf -c 9\n")["profiles"]
    assert [entry["profile"]["id"] for entry in found] == ["dense", "dense-2"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"command": "ollama run gemma"}, "no llama-server command"),
        ({"command": ""}, "no llama-server command"),
        ({"command": "llama-server -m 'a"}, "in line 1 is never closed"),
        ({"command": "llama-server -hf a/b:Q4_K_M"}, "names no model file"),
        ({"command": ["ollama", "run", "gemma"]}, "saw 'ollama'"),
        ({"command": []}, "saw nothing"),
        ({"command": "[gemma]\nmodel = /m/gemma.gguf\nctx-size = 4096\n"}, "preset INI"),
        ({"command": "models:\n  gemma:\n    cmd: llama-server -m g.gguf\n"}, "llama-swap YAML"),
        ({"commands": "llama-server"}, "command"),
        ({"command": 7}, "command"),
        ({"command": "x" * 70_000}, "at most"),
    ],
)
def test_what_cannot_be_imported_is_named(service: Service, body: Any, said: str) -> None:
    problem = refused(service, body, 422)
    assert said in problem["detail"]
    assert problem["problems"]


def test_a_command_without_a_file_tells_what_was_refused(service: Service) -> None:
    problem = refused(service, {"command": "llama-server -hf a/b --foo"}, 422)
    assert problem["code"] == "command-line-invalid"
    assert [entry["field"] for entry in problem["problems"]] == ["-hf a/b", "--foo"]


def test_the_route_is_described(service: Service) -> None:
    described = service.client.get("/openapi.json").json()["paths"]["/profiles/import"]["post"]
    assert {"200", "201", "409", "422"} <= set(described["responses"])
