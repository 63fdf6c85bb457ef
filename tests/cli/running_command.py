"""The `paceline` command while it runs: what it prints is read line by line."""

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from cli.paceline_command import clean_environment

DEADLINE_SECONDS = 30.0


class RunningCommand:
    """Waits for lines are bounded: one that does not come fails the test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.out: queue.Queue[str | None] = queue.Queue()
        self.err: queue.Queue[str | None] = queue.Queue()
        pairs = ((process.stdout, self.out), (process.stderr, self.err))
        self._readers = [threading.Thread(target=_read, args=pair) for pair in pairs]
        for reader in self._readers:
            reader.start()

    def line(self) -> str:
        """The next line of its standard output."""
        found = self.out.get(timeout=DEADLINE_SECONDS)
        assert found is not None, f"it has ended: {self.said_of_itself()}"
        return found

    def lines(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def line_with(self, text: str) -> str:
        """The next line that has this text."""
        while text not in (found := self.line()):
            pass
        return found

    def note(self) -> str:
        """The next line of its standard error."""
        found = self.err.get(timeout=DEADLINE_SECONDS)
        assert found is not None, "it has ended"
        return found

    def said_of_itself(self) -> str:
        """All of its standard error, when it has ended."""
        return "".join(iter(lambda: self.err.get(timeout=DEADLINE_SECONDS) or "", ""))

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        for reader in self._readers:
            reader.join(DEADLINE_SECONDS)


def _read(stream: IO[str], lines: "queue.Queue[str | None]") -> None:
    with stream:
        for line in stream:
            lines.put(line.rstrip("\n"))
    lines.put(None)


@contextlib.contextmanager
def running(*arguments: str, cwd: Path, settings: Mapping[str, str]) -> Iterator[RunningCommand]:
    """The command in a folder of its own, killed at the end where it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=cwd,
        env=clean_environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command = RunningCommand(process)
    try:
        yield command
    finally:
        command.close()
