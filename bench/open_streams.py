"""A thousand open streams: what memory each costs the service, and whether any of them starves."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.loads import send
from bench.processes import allow_open_files, ended
from bench.servers import Server
from bench.service import running_service
from bench.table import PACELINE, Line, told

_MOST_KIB, _MOST_RATIO = 64.0, 1.2
_INTERVAL_MS = 200
# So long that none ends before all are counted; then the client leaves.
_CHUNKS = 60 * 1000 // _INTERVAL_MS
# A server has a connection to the client and one to the engine for each.
_FILES_PER_STREAM, _OTHER_FILES = 2, 500
# As a server is after its first requests, without what many streams at a time leave behind.
_WARM_UP = (("passed", "4", "400"), ("stream", "4", "50", "5"))


@dataclass(frozen=True)
class OpenStreams:
    """Resident memory before and with so many streams open, and the events that came in each of them meanwhile."""

    idle_bytes: int
    open_bytes: int
    counted: list[int]

    @property
    def each_kib(self) -> float:
        """The memory of one stream."""
        return (self.open_bytes - self.idle_bytes) / len(self.counted) / 1024

    @property
    def ratio(self) -> float:
        """How much further the best has come than the worst."""
        return max(self.counted) / min(self.counted) if min(self.counted) else float("inf")


def lines(*, quick: bool) -> Iterator[Line]:
    """Both figures, of a service of their own: in one that had many streams before, new ones use their memory."""
    streams, seconds = (200, 2) if quick else (1000, 5)
    with tempfile.TemporaryDirectory(prefix="pl-") as folder, running_service(Path(folder)) as service:
        got = open_streams(Server(PACELINE, service.port, (service.pid,), service.wait_for_rows), streams, seconds)
    memory, progress = names(streams)
    at_rest = f" KiB (at rest {got.idle_bytes / 2**20:.0f} MiB)"
    events = f" ({min(got.counted)} to {max(got.counted)} events)"
    yield Line(memory, "KiB", {PACELINE: got.each_kib}, got.each_kib, at_rest, _MOST_KIB)
    yield Line(progress, "", {PACELINE: got.ratio}, got.ratio, events, _MOST_RATIO)


def names(streams: int) -> tuple[str, str]:
    """Of the lines for memory and progress."""
    what = f"{streams:,} open streams of {1000 // _INTERVAL_MS} a second"
    return f"memory per stream, {what}", f"best / worst progress, {what}"


def open_streams(server: Server, streams: int, seconds: int) -> OpenStreams:
    """Have so many open at a time, and count for so long. RuntimeError where they did not all run."""
    allow_open_files(_FILES_PER_STREAM * streams + _OTHER_FILES)
    for arguments in _WARM_UP:
        server.count(send(server.port, arguments).requests)
    told(f"{streams} open streams, {server.name}")
    idle_bytes = resident_bytes(server)
    numbers = [str(number) for number in (server.port, streams, seconds, _CHUNKS, _INTERVAL_MS)]
    command = [sys.executable, "-m", "bench.progress", *numbers]
    seen_bytes = []
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE)) as client:
        assert client.stdout is not None
        for word in (b"open\n", b"counted\n"):
            if client.stdout.readline() != word:
                raise RuntimeError(f"{streams} streams did not come to be {word.decode().strip()}")
            seen_bytes.append(resident_bytes(server))
        counted: list[int] = json.loads(client.stdout.readline())
    # They were given up, and have their rows as well.
    server.count(streams)
    return OpenStreams(idle_bytes, max(seen_bytes), counted)


def resident_bytes(server: Server) -> int:
    """The memory of all its processes."""
    resident: int = sum(psutil.Process(pid).memory_info().rss for pid in server.pids)
    return resident
