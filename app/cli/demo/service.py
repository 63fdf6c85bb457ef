"""The demo's own service: a process with its own data, on a free port, that ends with the demo."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from app.cli.demo.model import DemoFailed
from app.instances import tether

_PREFERRED_PORT = 8088
_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_PAUSE_SECONDS = 0.05
_LINES_SHOWN = 12


class DemoService:
    """Runs `paceline serve` for as long as the context lasts. Raises DemoFailed where it does not come up."""

    def __init__(self, folder: Path, models: Path) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "service.log"
        self._folder = folder
        self._env = _environment(folder, models, port)

    def __enter__(self) -> Self:
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                # The tether ends the service also where the demo is killed.
                [sys.executable, "-I", "-S", str(tether.__file__), str(os.getpid()),
                 sys.executable, "-P", "-m", "app.cli", "serve"],
                # A folder without a .env file, which would be settings too.
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal is for the demo, which then stops the service in order.
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_up()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def wait(self) -> None:
        """Until it ends, which it does not by itself: then raises DemoFailed."""
        self._process.wait()
        raise self.failure()

    def failure(self) -> DemoFailed:
        """What became of it, with its last words."""
        code = self._process.poll()
        how = "does not answer" if code is None else f"ended with code {code}"
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_SHOWN:]
        words = "\n".join(f"  {line}" for line in lines)
        return DemoFailed(f"the demo's service {how}; all it said is in {self.log_path}, at last:\n{words}")

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/health", timeout=2, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(_PAUSE_SECONDS)
        raise self.failure()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment(folder: Path, models: Path, port: int) -> Mapping[str, str]:
    """Ours without its settings: the demo shows the same whatever is configured. Only the engine may be chosen."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    engine = os.environ.get("PACELINE_ENGINE") or "embedded"
    return {
        **environment,
        "PACELINE_HOST": "127.0.0.1",
        "PACELINE_PORT": str(port),
        "PACELINE_DATA_DIR": str(folder / "data"),
        "PACELINE_MODEL_DIRS": json.dumps([str(models)]),
        "PACELINE_ENGINE": engine if engine in ("auto", "embedded") else str(Path(engine).absolute()),
        "PACELINE_DRAIN_SECONDS": "2",
    }


def _free_port() -> int:
    """The port of a service as a rule, else any free one. Should it be taken meanwhile, the service says so."""
    for port in (_PREFERRED_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen: int = probe.getsockname()[1]
            return chosen
    raise DemoFailed("no free port on 127.0.0.1")
