"""Streams through the real service while it has other work: what that adds to the gaps between their events."""

import bisect
import json
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import httpx

from app.identifiers import IDS_PER_HOUR
from bench.loads import ask_client
from bench.recorder import SECONDS_BETWEEN
from bench.relay import print_load_average
from bench.rollups import filled
from bench.service import Service, running_service
from bench.table import Line, Table, told

ADDED_MOST_MS = 5.0
_WITHOUT, _WITH = "without", "with"
_STREAMS, _INTERVAL_MS = 32, 25
_CHUNKS, _ROUNDS = 120, 3
_CHUNKS_QUICK, _ROUNDS_QUICK = 40, 1
# What is done with old rows goes on by itself; it is looked at so often.
_CHUNKS_MEANWHILE, _CHUNKS_MEANWHILE_QUICK, _LOOK_SECONDS = 400, 80, 0.05
# Streams that begin are in the way of each other.
_BEGINNING_US = 500_000
# As long as a round: a p99 is that of so long, and of several the median, since the machine may have been busy in one.
_SLICE_US = 2_500_000
_EVENTS_LEAST = 100
_SCRAPES_A_SECOND, _QUESTIONS_A_SECOND = 4, 4
_KEPT_UP_SECONDS = 300
_DAY_SECONDS = 86_400

Ask = Callable[[httpx.Client, threading.Event], None]
"""Asks the service for something, again and again until the event is set."""


def run(rows: int, *, quick: bool) -> int:
    """Print by how much gaps grow beside each kind of work on so many rows; 1 where that is over the budget."""
    span_seconds = rows * SECONDS_BETWEEN
    retention = {"RETENTION_DAYS": f"{span_seconds / _DAY_SECONDS / 2:.3f}"}
    rounds, chunks = (_ROUNDS_QUICK, _CHUNKS_QUICK) if quick else (_ROUNDS, _CHUNKS)
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        filled(folder / "data" / "paceline.db", rows, time.time() - span_seconds - _DAY_SECONDS / 24)
        print(f"gaps of {_STREAMS} streams of {1000 // _INTERVAL_MS} a second beside other work, {rows:,} rows; p99")
        table = Table((_WITHOUT, _WITH))
        table.begin()
        with running_service(folder, retention) as service:
            keeping_up = _while_it_keeps_up(service, _CHUNKS_MEANWHILE_QUICK if quick else _CHUNKS_MEANWHILE)
            alone: list[float] = []
            beside: dict[str, list[float]] = {what: [] for what in _WORK}
            for number in range(rounds):
                told(f"round {number + 1} of {rounds}")
                alone.append(_p99_quiet(service, chunks))
                for what, ask in _WORK.items():
                    beside[what].append(_p99_beside(service, chunks, ask))
    without_ms = statistics.median(alone)
    taken = keeping_up | {what: statistics.median(each) for what, each in beside.items()}
    for what, with_ms in taken.items():
        values = {_WITHOUT: without_ms, _WITH: with_ms}
        table.add(Line(what, "ms", values, with_ms - without_ms, " ms", ADDED_MOST_MS))
    print_load_average()
    return 0 if quick or table.is_within else 1


def _while_it_keeps_up(service: Service, chunks: int) -> dict[str, float]:
    """p99 in each stage of what a service does with old rows when it starts. RuntimeError where it takes minutes."""
    deadline = time.monotonic() + _KEPT_UP_SECONDS
    over = threading.Event()
    stages: list[tuple[int, str | None]] = []

    def look_on() -> None:
        with closing(sqlite3.connect(f"file:{service.database}?mode=ro", uri=True)) as connection:
            while not over.wait(_LOOK_SECONDS):
                stages.append((time.monotonic_ns() // 1000, _stage(connection)))

    looking = threading.Thread(target=look_on)
    looking.start()
    events: list[tuple[int, int]] = []
    try:
        while not stages or stages[-1][1] is not None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {_KEPT_UP_SECONDS} s rows are still {stages[-1][1]}")
            told("what is done with old rows")
            events.extend(_gaps(service, chunks))
    finally:
        over.set()
        looking.join()
    return {what: statistics.median(slices) for what, slices in _slices_of_stages(events, stages).items()}


def _slices_of_stages(
    events: Sequence[tuple[int, int]], stages: Sequence[tuple[int, str | None]]
) -> Mapping[str, Sequence[float]]:
    """p99 of each _SLICE_US of each stage."""
    added: dict[tuple[str, int], list[int]] = {}
    moments = [at_us for at_us, _ in stages]
    for at_us, added_us in events:
        number = bisect.bisect(moments, at_us) - 1
        stage = stages[number][1] if number >= 0 else None
        if stage is not None:
            added.setdefault((stage, at_us // _SLICE_US), []).append(added_us)
    slices: dict[str, list[float]] = {}
    for (stage, _), added_us_here in added.items():
        if len(added_us_here) >= _EVENTS_LEAST:
            slices.setdefault(f"rows are {stage}", []).append(_p99_ms(added_us_here))
    return slices


def _stage(connection: sqlite3.Connection) -> str | None:
    """What is being done with old rows; None where that is over."""

    def ask(statement: str) -> Sequence[int]:
        found: Sequence[int] = connection.execute(statement).fetchone()
        return found

    rolled_hour, kept_hour = ask("SELECT rolled_hour, kept_hour FROM rollup_state")
    if rolled_hour < time.time() // 3600 - 1:
        return "rolled up"
    (oldest,) = ask("SELECT min(id) FROM request")
    if not kept_hour or oldest < kept_hour * IDS_PER_HOUR:
        return "deleted"
    free, pages = *ask("PRAGMA freelist_count"), *ask("PRAGMA page_count")
    return "gone, and their pages given back" if free > max(300, pages * 0.1) else None


def _gaps(service: Service, chunks: int) -> list[tuple[int, int]]:
    """When each event came, and by how much its gap grew, in microseconds; without the beginning."""
    numbers = [str(number) for number in (service.port, _STREAMS, 1, chunks, _INTERVAL_MS)]
    got = json.loads(ask_client("bench.gaps", *numbers))
    begin_us = min(got["at_us"]) + _BEGINNING_US
    return [(at, added) for at, added in zip(got["at_us"], got["added_us"], strict=True) if at >= begin_us]


def _p99_ms(added_us: Sequence[int]) -> float:
    return sorted(added_us)[len(added_us) * 99 // 100] / 1000


def _p99_quiet(service: Service, chunks: int) -> float:
    return _p99_ms([added for _, added in _gaps(service, chunks)])


def _p99_beside(service: Service, chunks: int, ask: Ask) -> float:
    done = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            with httpx.Client(base_url=str(service.client.base_url), timeout=60, trust_env=False) as client:
                ask(client, done)
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        taken_ms = _p99_quiet(service, chunks)
    finally:
        done.set()
        thread.join()
    for failure in failures:
        raise failure
    return taken_ms


def _scrape(client: httpx.Client, done: threading.Event) -> None:
    while not done.wait(1 / _SCRAPES_A_SECOND):
        client.get("/metrics").raise_for_status()


def _ask_stats(client: httpx.Client, done: threading.Event) -> None:
    while not done.wait(1 / _QUESTIONS_A_SECOND):
        client.get("/stats", params={"group_by": "profile,category"}).raise_for_status()


def _export(form: str) -> Ask:
    def export(client: httpx.Client, done: threading.Event) -> None:
        while not done.is_set():
            with client.stream("GET", "/requests/export", params={"format": form}) as answer:
                for _ in _until(done, answer.raise_for_status().iter_raw()):
                    pass

    return export


def _until(done: threading.Event, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        if done.is_set():
            return


_WORK: dict[str, Ask] = {
    f"/metrics is scraped {_SCRAPES_A_SECOND} times a second": _scrape,
    "/requests/export writes CSV": _export("csv"),
    "/requests/export writes JSON lines": _export("jsonl"),
    "/requests/export writes Parquet": _export("parquet"),
    f"/stats is asked {_QUESTIONS_A_SECOND} times a second, by profile and category": _ask_stats,
}
