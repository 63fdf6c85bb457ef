"""Discovery and probing; the engine is the executable fake, or the embedded one."""

import asyncio
from pathlib import Path

import pytest

from app.errors import EngineNotFound, EngineUnusable
from app.inventory.engine import EngineKind
from app.llama_server.build import build_name
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe

FAKE = Path(__file__).parent.parent / "fakes" / "llama_server.py"


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_path_must_be_an_executable_file(tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="not a file"):
        find_engine(str(tmp_path / "absent"))
    (tmp_path / "plain").write_text("x", encoding="utf-8")
    with pytest.raises(EngineNotFound, match="chmod"):
        find_engine(str(tmp_path / "plain"))
    found = find_engine(str(FAKE))
    assert (found.kind, found.command) == (EngineKind.LLAMA_SERVER, (str(FAKE),))


def test_path_comes_before_the_embedded_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "llama-server", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_engine("auto").command == (path,)
    assert find_engine("embedded").kind is EngineKind.EMBEDDED


async def test_the_engine_says_what_it_is() -> None:
    facts = await EngineProbe(lambda: find_engine(str(FAKE))).facts()
    assert facts.takes_devices
    assert "draft-dspark" in facts.spec_types
    assert facts.flags["-c"].takes_value
    assert facts.build.startswith("0.6.0-dev-")


async def test_the_embedded_engine_has_no_choice_of_devices() -> None:
    facts = await EngineProbe(lambda: find_engine("embedded")).facts()
    assert not facts.takes_devices
    assert facts.build.startswith("xllamacpp-")
    assert "draft-mtp" in facts.spec_types


async def test_an_engine_is_asked_once_until_its_program_changes(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = f'echo "$@" >> {asked}; exec {FAKE} "$@"'
    path = program(tmp_path / "llama-server", script)
    probe = EngineProbe(lambda: find_engine(path))
    await asyncio.gather(probe.facts(), probe.facts())
    first = asked.read_text(encoding="utf-8").splitlines()
    assert sorted(first) == ["--help", "--list-devices", "--version"]
    program(tmp_path / "llama-server", script + " # newer")
    await probe.facts()
    assert len(asked.read_text(encoding="utf-8").splitlines()) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [("exit 3", "exited with 3"), ("echo hello", "does not list --model"), ("kill -9 $$", "exited with -9")],
)
async def test_what_is_no_llama_server_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = program(tmp_path / "llama-server", text)
    with pytest.raises(EngineUnusable, match=message):
        await EngineProbe(lambda: find_engine(path)).facts()


async def test_the_question_of_devices_names_the_rpc_servers(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    path = program(tmp_path / "llama-server", f'echo "$@" >> {asked}; exec {FAKE} "$@"')
    await EngineProbe(lambda: find_engine(path), ["127.0.0.1:1", "127.0.0.1:2"]).facts()
    assert "--rpc 127.0.0.1:1,127.0.0.1:2 --list-devices" in asked.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("version: 6543 (1a2b3c4)\nbuilt with GNU", "b6543-1a2b3c4"),
        ("version: 0.6.0 (build 11500, commit abcdef1)", "b11500-abcdef1"),
        ("version: embedded engine (xllamacpp 2026.10.11549)", "xllamacpp-2026.10.11549"),
    ],
)
def test_numbered_builds_are_named_by_their_number(output: str, expected: str, tmp_path: Path) -> None:
    assert build_name(output, tmp_path / "unused") == expected


def test_builds_without_a_number_are_told_apart_by_their_files(tmp_path: Path) -> None:
    output = "version: 0.6.0-dev (build 0, commit unknown)"
    server, library = tmp_path / "llama-server", tmp_path / "libllama.so"
    server.write_bytes(b"program")
    library.write_bytes(b"one")
    first = build_name(output, server)
    assert first.startswith("0.6.0-dev-")
    assert build_name(output, server) == first
    library.write_bytes(b"two")
    assert build_name(output, server) != first
