"""The recorder: what an event costs the event loop, how many rows a second are written, how large a row is."""

import asyncio
import itertools
import random
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from app.database import Database
from app.identifiers import first_id_at
from app.instances.lease import LaunchContext
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.queries import RequestFilters, list_requests
from app.telemetry.recorder import Recorder
from app.telemetry.retention import Retention
from app.telemetry.spill import SpillFile
from app.telemetry.stats import stats
from bench import steady

ROWS = 1_000_000
BURST = 5_000
EPOCH_SECONDS = 1_760_000_000
SECONDS_BETWEEN = 2.5
_STEADY_ROWS = 75_000


def run(rows: int = ROWS) -> int:
    """Print the figures for `rows` realistic requests of 12 profiles with 5 revisions each; 1 where one is over its
    budget.
    """
    status = 0
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
            size_bytes = _size_bytes(file)
            print(f"  {size_bytes / 1e6:,.1f} MB on disk, {size_bytes / rows:.1f} bytes per row, indexes included")
            status = _beside_a_reader(database, rows) or status
            database.close()
    return status


def _beside_a_reader(database: Database, rows: int) -> int:
    """With hours that are over rolled up, as they are in a service."""
    end_seconds = EPOCH_SECONDS + rows * SECONDS_BETWEEN
    Retention(database, days=0, bytes_most=0, clock=lambda: end_seconds).keep_up()
    # Of the hour that has begun.
    few = min(_STEADY_ROWS, rows)
    events = realistic(few, seed=8, begin_seconds=end_seconds, seconds_between=1 / steady.RATE_LEAST)
    return steady.run(database, list(events))


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


def realistic(
    rows: int,
    with_client_id: float = 0.25,
    seed: int = 7,
    begin_seconds: float = EPOCH_SECONDS,
    seconds_between: float = SECONDS_BETWEEN,
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
            request_id=first_id_at(round((begin_seconds + number * seconds_between) * 1000)) + chance.getrandbits(16),
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
