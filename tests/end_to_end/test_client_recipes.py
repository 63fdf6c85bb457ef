"""The commands and programs of the README and of the page on clients, run as they stand against a service."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fixtures.code_blocks import code_blocks
from fixtures.programs import needed_program
from fixtures.speaking_service import WORDS, speaking_service
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, Service

TEXT = "".join(WORDS)
WRITTEN_URL = "http://127.0.0.1:8088"
DOCUMENTS = ("README.md", "docs/clients.md")
COMMANDS = [block for document in DOCUMENTS for block in code_blocks(document, "sh") if block.startswith("curl ")]
# LangChain is not among what the tests install.
PROGRAMS = [block for document in DOCUMENTS for block in code_blocks(document, "python") if "langchain" not in block]


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory, tiny: TinyModels) -> Iterator[Service]:
    """A service with the profiles that the documents name."""
    with speaking_service(tmp_path_factory.mktemp("speaking"), tiny) as service:
        for name in ("small", "gemma-baseline", "gemma-ngram"):
            service.add({"id": name, "target": {"path": "words.gguf"}, "context": {"threads": 1}})
        yield service


def run(speaking: Service, *command: str) -> str:
    """What the command prints, once the URL in its last word is that of the service."""
    assert WRITTEN_URL in command[-1]
    done = subprocess.run(
        [*command[:-1], command[-1].replace(WRITTEN_URL, speaking.base_url)],
        env={**os.environ, "PACELINE_KEY": "any-word"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_a_command_with_curl(speaking: Service, command: str) -> None:
    needed_program("curl", "curl")
    said = run(speaking, "/bin/bash", "-euc", command)
    if '"stream": true' in command:
        events = [line.removeprefix("data: ") for line in said.splitlines() if line]
        assert events[-1] == "[DONE]"
        assert all(json.loads(event)["choices"] for event in events[:-1])
    elif command.split()[2].endswith("/v1/models"):
        assert {"small", "auto"} <= {model["id"] for model in json.loads(said)["data"]}
    elif "messages " in command:
        assert json.loads(said)["content"][0]["text"] == TEXT
    else:
        assert json.loads(said)["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program(speaking: Service, program: str) -> None:
    assert TEXT in run(speaking, sys.executable, "-c", program)


def test_curl_shows_each_event_as_it_comes(speaking: Service) -> None:
    """Of an answer that has not ended: the first event is there long before the last."""
    needed_program("curl", "curl")
    (command,) = [command for command in COMMANDS if command.startswith("curl -sN ")]
    endless = command.replace(WRITTEN_URL, speaking.base_url).replace('"auto"', '"endless"')
    endless = endless.replace('"max_tokens": 24', '"max_tokens": 16000, "ignore_eos": true')
    with subprocess.Popen(
        ["/bin/bash", "-euc", f"exec {endless}"],
        env={**os.environ, "PACELINE_KEY": "any-word"},
        stdout=subprocess.PIPE,
        text=True,
    ) as curl:
        assert curl.stdout is not None
        assert curl.stdout.readline().startswith("data: {")
        (active,) = speaking.client.get("/requests", params={"state": "active"}).json()["items"]
        assert active["category"] == "qa"
        curl.terminate()
    assert speaking.row_of(active["id"])["outcome"] == "client_gone"
