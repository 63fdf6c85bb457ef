"""Requests with all that can be absent absent here and there, and their way into a database."""

import random
from collections.abc import Iterable
from dataclasses import replace

from fakes.finished_requests import CONTEXT, DRAFTED, PLAIN_CONTEXT, UNDRAFTED, finished, rejected
from msgspec import structs

from app.database import Database
from app.llama_server.timings import EngineReport
from app.proxy.observer import Outcome, RequestFinished
from app.telemetry.recorder import Recorder


def some_events(count: int, hours: float, seed: int = 5) -> list[RequestFinished]:
    """Over so many hours from START on, with all that can be absent absent here and there."""
    chance = random.Random(seed)  # noqa: S311
    events = []
    for number in range(count):
        context = replace(chance.choice((CONTEXT, PLAIN_CONTEXT)), revision=chance.randrange(1, 3))
        report = structs.replace(
            chance.choice((DRAFTED, UNDRAFTED)),
            generated_tokens=chance.choice((1, 2, 65, 700)),
            generation_us=chance.choice((0, None, 5, 900_000)),
            draft_tokens=chance.choice((None, 0, 50)),
        )
        more = {
            "context": context,
            "report": chance.choice((report, report, EngineReport())),
            "category": chance.choice((None, "code", "qa")),
            "outcome": chance.choice((Outcome.COMPLETED, Outcome.CLIENT_GONE)),
            "queue_us": chance.choice((0, 3, 80_000)),
            "time_to_first_token_us": chance.choice((None, chance.randrange(1, 10**7))),
        }
        at = hours * 3600 * number / count
        events.append(rejected(at, profile_id=None) if number % 9 == 0 else finished(at, **more))  # type: ignore[arg-type]
    return events


async def record(database: Database, events: Iterable[RequestFinished]) -> None:
    recorder = Recorder(database)
    for event in events:
        recorder.on_request_finished(event)
    await recorder.flush()
    assert recorder.lost_rows == 0
