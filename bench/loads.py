"""The loads that the relay is measured under, and their budgets."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One way to load a server; `most_ratio` is the budget, in nginx's CPU time per unit."""

    name: str
    unit: str
    arguments: tuple[str, ...]
    warm_up: tuple[str, ...]
    rounds: int
    most_ratio: float


@dataclass(frozen=True)
class Sent:
    """What the client says of one run: what it sent, and latencies."""

    requests: int
    units: int
    p50_us: int
    p99_us: int


@dataclass(frozen=True)
class Measured:
    """One round, or the median of several."""

    cpu_us: float
    p50_us: float
    p99_us: float


def loads(*, quick: bool) -> list[Load]:
    """Requests are many enough for a resolution of a few percent, few enough for the time limit."""
    requests, chunks, unary_rounds, stream_rounds = (1600, 60, 3, 3) if quick else (3200, 200, 7, 3)

    def unary(connections: int, most_ratio: float) -> Load:
        name = f"unary, {connections} connection{'s' if connections > 1 else ''}"
        arguments = ("unary", str(connections), str(requests))
        warm_up = ("unary", str(connections), "640")
        return Load(name, "request", arguments, warm_up, unary_rounds, most_ratio)

    return [
        unary(1, 10.0),
        unary(32, 12.0),
        Load(
            "20 paced streams of 50 chunks/s",
            "chunk",
            ("stream", "20", str(chunks), "20"),
            ("stream", "20", "10", "20"),
            stream_rounds,
            3.5,
        ),
    ]


def send(port: int, arguments: Sequence[str]) -> Sent:
    """Run the client. CalledProcessError where an answer was not what it should be."""
    command = [sys.executable, "-m", "bench.load", str(port), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    return Sent(**json.loads(done.stdout))


def median(rounds: Sequence[Measured]) -> Measured:
    """The median of each figure."""
    return Measured(
        statistics.median(each.cpu_us for each in rounds),
        statistics.median(each.p50_us for each in rounds),
        statistics.median(each.p99_us for each in rounds),
    )
