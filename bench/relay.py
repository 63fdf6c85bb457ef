"""What the relay costs: CPU time per request and per chunk, beside nginx in front of the same engine.

Run as `python -m bench.relay`; it ends within 90 s. `--quick` measures a quarter of the load.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu_time import cpu_seconds
from bench.nginx_proxy import pids_of, start_nginx


@dataclass(frozen=True)
class Load:
    """One way to load a server; `most_ratio` is the budget, in nginx's CPU time per unit."""

    name: str
    unit: str
    arguments: tuple[str, ...]
    warm_up: tuple[str, ...]
    most_ratio: float


@dataclass(frozen=True)
class Measured:
    cpu_us: float
    p50_us: int
    p99_us: int


def loads(scale: float) -> list[Load]:
    """Requests are many enough for 1 % resolution, few enough for the time limit."""

    def unary(connections: int, requests: int) -> tuple[str, ...]:
        return ("unary", str(connections), str(round(requests * scale)))

    return [
        Load("unary, 1 connection", "request", unary(1, 6000), unary(1, 500), 10.0),
        Load("unary, 32 connections", "request", unary(32, 9600), unary(32, 640), 12.0),
        Load(
            "20 paced streams of 50 chunks/s",
            "chunk",
            ("stream", "20", str(round(250 * scale)), "20"),
            ("stream", "20", "10", "20"),
            3.5,
        ),
    ]


def measure(load: Load, port: int, pids: list[int]) -> Measured:
    _run_load(port, load.warm_up)
    before = cpu_seconds(pids)
    result = _run_load(port, load.arguments)
    spent = cpu_seconds(pids) - before
    return Measured(spent * 1e6 / result["units"], result["p50_us"], result["p99_us"])


def main(*, quick: bool = False) -> int:
    """Measure and print; 1 where a budget is exceeded."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        socket_path = folder / "engine.sock"
        direct, behind_nginx, behind_paceline = free_ports(3)
        stack.enter_context(running([sys.executable, "-m", "bench.echo_engine", str(socket_path), str(direct)]))
        nginx = start_nginx(folder, socket_path, behind_nginx)
        if nginx is None:
            print("nginx is not installed: its column and the ratios are left out")
        else:
            stack.enter_context(ended(nginx))
        service = [sys.executable, "-m", "bench.service", str(behind_paceline), str(socket_path)]
        paceline = stack.enter_context(running(service))
        for port in (direct, behind_paceline, *([] if nginx is None else [behind_nginx])):
            wait_for(port)
        exceeded = False
        print(f"{'load':<44}{'':>10}{'CPU us':>9}{'ratio':>7}{'budget':>8}{'p50 us':>9}{'p99 us':>9}")
        for load in loads(0.25 if quick else 1.0):
            _print(f"{load.name}, per {load.unit}", "direct", measure(load, direct, []), "", "")
            reference = None if nginx is None else measure(load, behind_nginx, pids_of(nginx))
            if reference is not None:
                _print("", "nginx", reference, "1.0", "")
            measured = measure(load, behind_paceline, pids_of(paceline))
            ratio = None if reference is None else measured.cpu_us / reference.cpu_us
            exceeded = exceeded or (ratio is not None and ratio > load.most_ratio)
            _print("", "paceline", measured, "" if ratio is None else f"{ratio:.1f}", f"{load.most_ratio}")
        if exceeded:
            print("over budget")
        return int(exceeded)


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def running(command: list[str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A process for the length of a block."""
    return ended(subprocess.Popen(command))


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process after the block."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, seconds: float = 15.0) -> None:
    """Until something listens on that port."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _run_load(port: int, arguments: tuple[str, ...]) -> dict[str, int]:
    command = [sys.executable, "-m", "bench.load", str(port), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    result: dict[str, int] = json.loads(done.stdout)
    return result


def _print(load: str, server: str, measured: Measured, ratio: str, budget: str) -> None:
    cpu = "0" if server == "direct" else f"{measured.cpu_us:.1f}"
    print(f"{load:<44}{server:>10}{cpu:>9}{ratio:>7}{budget:>8}{measured.p50_us:>9}{measured.p99_us:>9}")


if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv))
