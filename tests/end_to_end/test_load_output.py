"""The recorded output of loads is what the engines print today.

With PACELINE_WRITE_CAPTURES=1 the recordings are written anew instead.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.load_captures import command, output_of, run
from fixtures.load_shapes import LOAD_SHAPES, REAL, LoadShape, capture_path
from fixtures.loaded import loaded
from fixtures.tiny_models import TinyModels

from app.llama_server.load_facts import LoadFacts

RUNS = [
    pytest.param(shape, engine, id=f"{shape.id}-{engine}", marks=[pytest.mark.engine] if engine == REAL else [])
    for shape in LOAD_SHAPES
    for engine in shape.engines
]


ENGINES = [pytest.param(engine, marks=[pytest.mark.engine] if engine == REAL else []) for engine in (REAL, "embedded")]
SECRET = "qzsecretqz"


@pytest.fixture
def rpc(request: pytest.FixtureRequest, shape: LoadShape) -> tuple[str, ...]:
    """Addresses of devices, where the shape uses any."""
    addresses: tuple[str, ...] = request.getfixturevalue("rpc_devices") if shape.placement else ()
    return addresses


@pytest.fixture
def path(request: pytest.FixtureRequest, engine: str) -> Path:
    """The real engine, where it is asked for."""
    found: Path = request.getfixturevalue("engine_path") if engine == REAL else Path()
    return found


def ordered(facts: LoadFacts) -> LoadFacts:
    """The engine sorts devices behind RPC by their addresses, which are others each time."""
    return replace(facts, buffers=sorted(facts.buffers, key=repr))


@pytest.mark.parametrize(("shape", "engine"), RUNS)
def test_an_engine_prints_what_was_recorded(
    tiny: TinyModels, shape: LoadShape, engine: str, path: Path, rpc: tuple[str, ...]
) -> None:
    lines = output_of(shape, engine, path, tiny, rpc)
    recording = capture_path(shape, engine)
    if os.environ.get("PACELINE_WRITE_CAPTURES") == "1":
        recording.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recorded = recording.read_text(encoding="utf-8").splitlines()
    assert ordered(loaded(lines).facts) == ordered(loaded(recorded).facts)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_text_of_a_request_is_printed(tiny: TinyModels, engine: str, path: Path) -> None:
    """At the verbosity that tells placements: neither prompts nor tools, schemas, grammars, stop words."""
    launch = next(shape for shape in LOAD_SHAPES if shape.id == "host-draft").launch(tiny)
    chat = {"messages": [{"role": "system", "content": SECRET}, {"role": "user", "content": SECRET}], "max_tokens": 4}
    schema = {"type": "object", "properties": {SECRET: {"type": "string"}}}
    tool = {"type": "function", "function": {"name": SECRET, "parameters": schema}}
    lines = run(
        command(engine, path),
        launch,
        ("/v1/completions", {"prompt": SECRET * 9, "max_tokens": 4, "stop": [SECRET]}),
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", {**chat, "tools": [tool]}),
        (
            "/v1/chat/completions",
            {**chat, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
        ),
        ("/completion", {"prompt": SECRET, "n_predict": 20, "grammar": f'root ::= "{SECRET}"'}),
    )
    assert "--verbosity" in launch.flags
    assert sum("stop processing" in line for line in lines) == 5
    assert [line for line in lines if SECRET in line] == []
