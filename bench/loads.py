"""The loads under which CPU time is measured, and their budgets."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_ANSWER_CHUNKS = 64
_WARM_UP_CHUNKS = 8
_SECONDS_AT_MOST = 120


@dataclass(frozen=True)
class Load:
    """One way to load a server; `most_ratio` is the budget, in nginx's CPU time per unit.

    `beside` names the load whose figure this one is told in; it has no budget, and only the service gets it.
    """

    name: str
    arguments: tuple[str, ...]
    warm_up: tuple[str, ...]
    rounds: int
    most_ratio: float | None = None
    beside: str | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the client gets streams."""
        return self.arguments[0] == "stream"


@dataclass(frozen=True)
class Sent:
    """What the client says of one run."""

    requests: int
    units: int


def loads(*, quick: bool) -> list[Load]:
    """Requests are many enough for a resolution of a few percent, few enough for the time limit."""
    requests, rounds = (640, 3) if quick else (3200, 7)
    return [
        _passed(1, requests, rounds, 6.0),
        _passed(32, requests, rounds, 10.0),
        _together(1, "in a burst", 64 if quick else 320, 0, 3),
        _together(32, "50 a second", 32 if quick else 96, 20, 1 if quick else 2),
        Load(
            "CPU per chunk, 32 streams of 100 a second",
            ("stream", "32", "60" if quick else "200", "10"),
            ("stream", "32", "20", "10"),
            1 if quick else 3,
            3.0,
        ),
        Load(
            "CPU per chunk, 8 streams in bursts",
            ("stream", "8", "500" if quick else "2000", "0"),
            ("stream", "8", "500", "0"),
            3 if quick else 7,
            2.0,
        ),
    ]


def lighter(load: Load) -> Load:
    """A tenth of the requests and fewer rounds, for servers that are much slower."""
    kind, connections = load.arguments[:2]
    if kind == "passed":
        return Load(load.name, (kind, connections, "320"), (kind, connections, "128"), 3, load.most_ratio)
    return Load(load.name, load.arguments, load.warm_up, min(load.rounds, 2), load.most_ratio)


def send(port: int, arguments: Sequence[str]) -> Sent:
    """Run the client. CalledProcessError where an answer was not what it should be."""
    return Sent(**json.loads(ask_client("bench.load", str(port), *arguments)))


def ask_client(module: str, *arguments: str) -> bytes:
    """Run a client and return what it prints. CalledProcessError where it fails, TimeoutExpired after two minutes."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_SECONDS_AT_MOST).stdout


def _passed(connections: int, requests: int, rounds: int, most_ratio: float) -> Load:
    arguments = ("passed", str(connections), str(requests))
    return Load(
        _per_request("passed through", connections), arguments, (*arguments[:2], str(requests // 5)), rounds, most_ratio
    )


def _together(connections: int, manner: str, requests: int, interval_ms: int, rounds: int) -> Load:
    def arguments(requests: int, chunks: int) -> tuple[str, ...]:
        return ("together", str(connections), str(requests), str(chunks), str(interval_ms))

    return Load(
        _per_request(f"put together of {_ANSWER_CHUNKS} events, {manner}", connections),
        arguments(requests, _ANSWER_CHUNKS),
        arguments(2 * connections, _WARM_UP_CHUNKS),
        rounds,
        beside=_per_request("passed through", connections),
    )


def _per_request(manner: str, connections: int) -> str:
    return f"CPU per request {manner}, {connections} connection{'s' if connections > 1 else ''}"
