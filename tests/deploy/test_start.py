"""The entry point and the health check of the image, as they stand, without a container."""

import contextlib
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cli.paceline_command import clean_environment
from deploy.dockerfile import ROOT

DEADLINE_SECONDS = 30.0
SCRIPTS = ROOT / "deploy" / "docker"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What the image has, with its folders in `folder`, on loopback and a free port."""
    return clean_environment(
        PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin",
        PACELINE_HOST="127.0.0.1",
        PACELINE_PORT="0",
        PACELINE_DATA_DIR=str(folder / "data"),
        PACELINE_ADMIN_KEY_FILE=str(folder / "data" / "admin.key"),
        PACELINE_METRICS_KEY_FILE=str(folder / "keys" / "metrics.key"),
        **more,
    )


def health(folder: Path, port: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPTS / "healthcheck.py")],
        env=environment(folder) | {"PACELINE_PORT": str(port)}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


@contextlib.contextmanager
def started(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The entry point with its default command, and the port on which it serves."""
    process = subprocess.Popen(
        [str(SCRIPTS / "start"), "serve"], cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, port_of(process)
    finally:
        process.kill()
        process.communicate()


def port_of(process: "subprocess.Popen[str]") -> int:
    """Read its log up to the line that says so; a service that hangs is ended, which ends its log."""
    assert process.stderr is not None
    watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
    watchdog.start()
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+)", line):
            watchdog.cancel()
            return int(found[1])
    watchdog.cancel()
    raise AssertionError(said)


@pytest.mark.slow
def test_the_first_start_makes_the_keys_and_serves_with_them(tmp_path: Path) -> None:
    """Starts the real service, twice the imports: the whole first start of the image, which nothing else runs in CI."""
    with started(tmp_path) as (process, port):
        admin, metrics = tmp_path / "data" / "admin.key", tmp_path / "keys" / "metrics.key"
        assert stat.S_IMODE(admin.stat().st_mode) == 0o600
        assert stat.S_IMODE(metrics.stat().st_mode) == 0o640
        url = f"http://127.0.0.1:{port}/profiles"
        statuses = [
            httpx.get(url, headers={"x-api-key": key}, trust_env=False).status_code
            for key in ("wrong", metrics.read_text().strip(), admin.read_text().strip())
        ]
        assert statuses == [401, 403, 200]
        healthy = health(tmp_path, port)
        assert (healthy.returncode, healthy.stdout) == (0, "/health answers 200\n")
        process.send_signal(signal.SIGTERM)
        # In order, and then by the signal that asked for it.
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGTERM
        assert process.stderr is not None
        assert "Application shutdown complete" in process.stderr.read()
    gone = health(tmp_path, port)
    assert gone.returncode == 1
    assert f"port {port}" in gone.stderr


def test_other_commands_make_no_keys(tmp_path: Path) -> None:
    said = subprocess.run(
        [str(SCRIPTS / "start"), "--version"], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        check=True, timeout=30,
    )  # fmt: skip
    assert said.stdout.startswith("paceline ")
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_can_make_no_key_says_why_and_ends(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be", encoding="utf-8")
    said = subprocess.run(
        [str(SCRIPTS / "start"), "serve"], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        check=False, timeout=30,
    )  # fmt: skip
    assert said.returncode != 0
    assert "no key can be put into" in said.stderr
