"""The recorder: what an event costs the event loop, how many rows a second are written, how large a row is."""

import asyncio
import itertools
import random
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from app.database import Database
from app.identifiers import first_id_at
from app.instances.lease import LaunchContext
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.queries import RequestFilters, list_requests
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.stats import stats

ROWS = 1_000_000
BURST = 5_000
EPOCH_SECONDS = 1_760_000_000
SECONDS_BETWEEN = 2.5
STEADY_RATE = 5_000
STEADY_SECONDS = 5
STEADY_PORTION = 50


def run(rows: int = ROWS) -> None:
    """Print the figures for `rows` realistic requests of 12 profiles with 5 revisions each."""
    with tempfile.TemporaryDirectory() as folder:
        for share in (0.25, 1.0):
            file = Path(folder) / f"bench-{share}.db"
            database = Database(f"sqlite:///{file}")
            database.migrate()
            database.start()
            seconds, loop_microseconds = asyncio.run(_record(database, rows, share))
            print(f"recorder: {rows:,} rows, {share:.0%} with a client's own id")
            print(f"  {rows / seconds:,.0f} rows/s written, {loop_microseconds:.2f} us per event on the event loop")
            _time_queries(database)
            asyncio.run(_steady(database, rows))
            database.close()
            size_bytes = _size_bytes(file)
            print(f"  {size_bytes / 1e6:,.1f} MB on disk, {size_bytes / rows:.1f} bytes per row, indexes included")


async def _record(database: Database, rows: int, with_client_id: float) -> tuple[float, float]:
    """Seconds until all is committed, and microseconds of each event on the loop."""
    recorder = Recorder(database, spill=SpillFile(database.path.with_suffix(".spill")))
    recorder.start()
    told = total = 0.0
    events = realistic(rows, with_client_id)
    for _ in range(0, rows, BURST):
        burst = list(itertools.islice(events, BURST))
        started = time.perf_counter()
        for event in burst:
            recorder.on_request_finished(event)
        told += time.perf_counter() - started
        await recorder.flush()
        total += time.perf_counter() - started
    await recorder.close()
    assert recorder.lost_rows == 0
    return total, told * 1e6 / rows


async def _steady(database: Database, rows: int) -> None:
    """A stream of requests at STEADY_RATE, with a dashboard beside it that asks on and on."""
    count = min(STEADY_RATE * STEADY_SECONDS, rows)
    events = list(realistic(count, seed=8, begin_seconds=EPOCH_SECONDS + rows * SECONDS_BETWEEN))
    recorder = Recorder(database, spill=SpillFile(database.path.with_suffix(".spill")))
    recorder.start()
    told, behind, most_spilled = 0.0, 0.0, 0
    done = threading.Event()
    reader = asyncio.create_task(asyncio.to_thread(_read_on, database, done))
    began = time.perf_counter()
    for start in range(0, count, STEADY_PORTION):
        await asyncio.sleep(max(began + start / STEADY_RATE - time.perf_counter(), 0))
        started = time.perf_counter()
        behind = max(behind, started - began - start / STEADY_RATE)
        for event in events[start : start + STEADY_PORTION]:
            recorder.on_request_finished(event)
        told += time.perf_counter() - started
        most_spilled = max(most_spilled, recorder.spilled_rows)
    seconds = time.perf_counter() - began
    done.set()
    await reader
    await recorder.close()
    assert recorder.lost_rows == 0
    print(
        f"  {count / seconds:,.0f} rows/s for {seconds:.1f} s with a reader beside: {told * 1e6 / count:.2f} us per "
        f"event, none lost, {most_spilled:,} in the spill file at most, the loop {behind * 1e3:.0f} ms behind at most"
    )


def _read_on(database: Database, done: threading.Event) -> None:
    while not done.wait(0.05):
        with database.read() as session:
            list_requests(session, RequestFilters(), 50)
            stats(session, RequestFilters(since=datetime.now(UTC)), ("profile", "category"))
            session.connection().exec_driver_sql("SELECT count(*), sum(generated_tokens) FROM request").all()


def realistic(
    rows: int, with_client_id: float = 0.25, seed: int = 7, begin_seconds: float = EPOCH_SECONDS
) -> Iterator[RequestFinished]:
    """Requests as an assistant's day brings them: mostly completed streams, some failures, one in two speculating."""
    chance = random.Random(seed)
    contexts = [
        LaunchContext(
            f"profile-{profile}",
            revision,
            "b11434-0123456",
            f"{chance.getrandbits(64):016x}",
            "CUDA0,CUDA1",
            "draft" if profile % 2 else "none",
        )
        for profile in range(12)
        for revision in range(1, 6)
    ]
    instances = [first_id_at(round(EPOCH_SECONDS * 1000)) + chance.getrandbits(16) for _ in contexts]
    for number in range(rows):
        which = chance.randrange(len(contexts))
        context = contexts[which]
        outcome = chance.choices(list(Outcome), (94, 2, 1, 1, 1, 1))[0]
        generated = int(chance.lognormvariate(5.5, 1.0)) + 1
        prompt = int(chance.lognormvariate(7.0, 1.2)) + 1
        generation_us = int(generated * chance.uniform(8_000, 40_000))
        prompt_us = int(prompt * chance.uniform(300, 1500))
        drafts = generated // 2 if context.method == "draft" else None
        served = outcome is not Outcome.REJECTED
        report = EngineReport(
            prompt_tokens=prompt,
            cached_tokens=int(prompt * chance.random()),
            generated_tokens=generated,
            prompt_us=prompt_us,
            generation_us=generation_us,
            draft_tokens=drafts,
            accepted_tokens=None if drafts is None else int(drafts * chance.random()),
            finish_reason=chance.choice(("stop", "length", "tool_calls")),
        )
        yield RequestFinished(
            request_id=first_id_at(round((begin_seconds + number * SECONDS_BETWEEN) * 1000)) + chance.getrandbits(16),
            client_request_id=str(uuid.UUID(int=chance.getrandbits(128))) if chance.random() < with_client_id else None,
            instance_id=instances[which] if served else None,
            context=context if served else None,
            profile_id=context.profile_id,
            requested_model=context.profile_id,
            route_reason="id",
            endpoint=Endpoint.CHAT_COMPLETIONS,
            stream=chance.random() < 0.8,
            outcome=outcome,
            status_code=200 if served else 429,
            error=None if outcome is Outcome.COMPLETED else f"{outcome} for reason {chance.randrange(50)}",
            queue_us=int(chance.expovariate(1 / 2000)),
            time_to_first_token_us=prompt_us + 20_000 if served else None,
            duration_us=prompt_us + generation_us + 30_000,
            report=report if outcome is Outcome.COMPLETED else EngineReport(),
        )


def _time_queries(database: Database) -> None:
    with database.read() as session:
        for name, filters in (
            ("newest 50", RequestFilters()),
            ("newest 50 of one profile", RequestFilters(profile="profile-3")),
            ("newest 50 rejected", RequestFilters(outcome="rejected")),
        ):
            started = time.perf_counter()
            list_requests(session, filters, 50)
            print(f"  {name}: {(time.perf_counter() - started) * 1e3:.1f} ms")
        started = time.perf_counter()
        stats(session, RequestFilters())
        print(f"  stats of everything, by profile: {(time.perf_counter() - started) * 1e3:.0f} ms")


def _size_bytes(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
