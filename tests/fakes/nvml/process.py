"""NVML asked in a process of its own: a library is loaded once in the life of a process, and only there the stub."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.nvml import stub_environment

from app.inventory.nvml_snapshot import NvmlSnapshot

_TESTS = Path(__file__).parents[2]
_DEADLINE_SECONDS = 30.0


class NvmlProcess:
    """The other side of ask.py."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def read(self, *, traffic: bool = False) -> NvmlSnapshot:
        """One snapshot."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("traffic\n" if traffic else "read\n")
        self._process.stdin.flush()
        snapshot = pickle.loads(bytes.fromhex(self._process.stdout.readline()))  # noqa: S301 - from our own child
        assert isinstance(snapshot, NvmlSnapshot)
        return snapshot


@contextmanager
def nvml_process(library_folder: Path | None, scenario: Path, *, pause_seconds: float = 0.0) -> Iterator[NvmlProcess]:
    """A process with the stub, or without any library of the driver where there is no folder."""
    environment = {**os.environ, "PYTHONPATH": f"{_TESTS.parent}:{_TESTS}"}
    if library_folder is not None:
        environment |= stub_environment(library_folder, scenario)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "fakes.nvml.ask", str(pause_seconds)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield NvmlProcess(process)
    finally:
        process.communicate(timeout=_DEADLINE_SECONDS)
