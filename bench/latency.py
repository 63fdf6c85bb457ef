"""What the relay adds to latencies, beside no proxy at all, in the same minute."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench.loads import ask_client
from bench.servers import Server
from bench.table import DIRECT, PACELINE, Line, told

_MEDIAN_MS, _P99_MS, _GAP_MS, _LOST_PERCENT = 0.5, 2.0, 5.0, 2.0
_STREAMS, _INTERVAL_MS = 64, 25
Rounds = Mapping[str, Sequence[Sequence[float]]]
"""What was taken at each server, round by round, in milliseconds."""


def lines(servers: Sequence[Server], *, quick: bool) -> Iterator[Line]:
    """Each figure when it is there. The first of the servers is the engine without a proxy."""
    rounds = 1 if quick else 5
    yield from first_byte_lines(added_first_byte_ms(servers, 400, rounds))
    yield from flow_lines(servers, 1 if quick else 2, 40, rounds)


def added_first_byte_ms(servers: Sequence[Server], turns: int, rounds: int) -> Rounds:
    """By how much the others are later than the first server, turn by turn."""
    added: dict[str, list[list[float]]] = {server.name: [] for server in servers[1:]}
    for number in range(rounds):
        told(f"time to the first byte: round {number + 1} of {rounds}, {servers[-1].name}")
        got = json.loads(ask_client("bench.first_byte", str(turns), *(str(server.port) for server in servers)))
        direct, *others = got["taken_us"]
        for server, taken in zip(servers[1:], others, strict=True):
            added[server.name].append([(late - early) / 1000 for late, early in zip(taken, direct, strict=True)])
        for server in servers:
            server.count(got["requests"])
    return added


def first_byte_lines(added_ms: Rounds) -> Iterator[Line]:
    """What `added_first_byte_ms` found."""
    for name, share, most in (("median", 0.5, _MEDIAN_MS), ("p99", 0.99, _P99_MS)):
        values = _percentiles(added_ms, share)
        yield Line(f"added time to first byte, 1 connection, {name}", "ms", values, values[PACELINE], " ms", most)


def flow_lines(servers: Sequence[Server], requests: int, chunks: int, rounds: int) -> Iterator[Line]:
    """What is added to the gaps between events while many streams run, and what is lost of their tokens."""
    numbers = [str(number) for number in (_STREAMS, requests, chunks, _INTERVAL_MS)]
    grown_ms: dict[str, list[list[float]]] = {server.name: [] for server in servers}
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(rounds):
        for server in servers:
            told(f"{_STREAMS} streams: round {number + 1} of {rounds}, {server.name}")
            got = json.loads(ask_client("bench.gaps", str(server.port), *numbers))
            server.count(got["requests"])
            grown_ms[server.name].append([each / 1000 for each in got["added_us"]])
            rates[server.name].append(got["tokens"] / got["seconds"])
    what = f"{_STREAMS} streams of {1000 // _INTERVAL_MS} a second"
    gaps = _percentiles(grown_ms, 0.99)
    yield Line(f"growth of gaps between events, {what}, p99", "ms", gaps, gaps[PACELINE] - gaps[DIRECT], " ms", _GAP_MS)
    rate = {name: statistics.median(each) for name, each in rates.items()}
    lost_percent = (1 - rate[PACELINE] / rate[DIRECT]) * 100
    yield Line(f"token throughput, {what}", "1/s", rate, lost_percent, " % lost", _LOST_PERCENT)


def _percentiles(taken: Rounds, share: float) -> dict[str, float]:
    """The median over the rounds: one of them, in which the machine was busy with something else, does not count."""
    return {
        name: statistics.median(sorted(each)[int(len(each) * share)] for each in rounds)
        for name, rounds in taken.items()
    }
