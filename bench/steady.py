"""Requests at a steady rate with a dashboard beside: whether all are recorded, and what that adds to their path."""

import asyncio
import gc
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from app.cli.serve import SWITCH_SECONDS
from app.database import Database
from app.events import EventBus
from app.proxy.observer import RequestFinished
from app.telemetry.queries import RequestFilters, list_requests
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.stats import stats
from bench.answers import ANSWER

RATE_LEAST = 5_000
ADDED_MOST_US = 20.0
# A little over what is judged, since the last rows are committed after they are told.
_RATE = 5_500
_PORTION = 55
_CORES = 2
_ROUNDS = 3
_BETWEEN_QUESTIONS_SECONDS = 0.05


@dataclass(frozen=True)
class _Round:
    """`rate` counts what was committed, until the last was; `path_us` is the time of each request on the event loop."""

    rate: float
    path_us: float
    lost: int
    behind_ms: float


def run(database: Database, events: Sequence[RequestFinished]) -> int:
    """Print what recording them takes beside a reader of the same file, on two cores; 1 where a budget is exceeded."""
    each = len(events) // _ROUNDS
    parts = [events[start : start + each] for start in range(0, each * _ROUNDS, each)]
    with _as_the_service_is():
        rounds = [asyncio.run(_both(database, part)) for part in parts]
    added_us = statistics.median(recorded.path_us - alone.path_us for alone, recorded in rounds)
    rate = statistics.median(recorded.rate for _, recorded in rounds)
    lost = sum(recorded.lost for _, recorded in rounds)
    behind_ms = max(recorded.behind_ms for _, recorded in rounds)
    is_over = rate < RATE_LEAST or lost > 0 or added_us > ADDED_MOST_US
    print(
        f"  {rate:,.0f} rows/s beside a reader of /stats (at least {RATE_LEAST:,}), {lost} lost, {added_us:.1f} us "
        f"added to the path of each (at most {ADDED_MOST_US:.0f}), the event loop {behind_ms:.0f} ms behind at most"
        f"{' - exceeded' if is_over else ''}"
    )
    return int(is_over)


@contextmanager
def _as_the_service_is() -> Iterator[None]:
    """On two cores, with the service's turns between threads, and no collection that looks at all events there are."""
    cores, seconds = os.sched_getaffinity(0), sys.getswitchinterval()
    os.sched_setaffinity(0, sorted(cores)[:_CORES])
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(seconds)
        os.sched_setaffinity(0, cores)


async def _both(database: Database, events: Sequence[RequestFinished]) -> tuple[_Round, _Round]:
    """Without and with the recorder, the reader beside both."""
    done = threading.Event()
    reader = asyncio.create_task(asyncio.to_thread(_read_on, database, done))
    alone = await _serve(events, None)
    recorder = Recorder(database, spill=SpillFile(database.path.with_suffix(".spill")))
    recorder.start()
    recorded = await _serve(events, recorder)
    done.set()
    await reader
    await recorder.close()
    return alone, recorded


async def _serve(events: Sequence[RequestFinished], recorder: Recorder | None) -> _Round:
    bus = EventBus()
    if recorder is not None:
        bus.subscribe(RequestFinished, recorder.on_request_finished)
    path_seconds, behind_seconds = 0.0, 0.0
    began = time.perf_counter()
    for start in range(0, len(events), _PORTION):
        due = began + start / _RATE
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        started = time.perf_counter()
        behind_seconds = max(behind_seconds, started - due)
        for event in events[start : start + _PORTION]:
            _relay()
            bus.publish(event)
        path_seconds += time.perf_counter() - started
    if recorder is not None:
        await recorder.flush()
    seconds = time.perf_counter() - began
    lost = recorder.lost_rows if recorder is not None else 0
    return _Round(len(events) / seconds, path_seconds * 1e6 / len(events), lost, behind_seconds * 1e3)


def _relay() -> None:
    """Some of what a request takes, so that the writer's turns fall into it as they would."""
    for _ in range(4):
        json.loads(ANSWER)


def _read_on(database: Database, done: threading.Event) -> None:
    while not done.wait(_BETWEEN_QUESTIONS_SECONDS):
        with database.read() as session:
            list_requests(session, RequestFilters(), 50)
            stats(session, RequestFilters(), ("profile", "category"))
