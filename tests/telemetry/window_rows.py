"""Windows written into a database, and what it tells of them."""

from collections.abc import Iterable
from concurrent.futures import wait
from typing import Any

from app.database import Database
from app.identifiers import TimeOrderedIds
from app.instances.windows import AcceptanceWindowClosed
from app.telemetry.engine_acceptance import EngineAcceptance, engine_acceptance
from app.telemetry.queries import RequestFilters
from app.telemetry.recorder import Recorder
from app.telemetry.windows import WindowRecorder


def written(database: Database, windows: Iterable[AcceptanceWindowClosed]) -> None:
    """Each at the moment at which it ended."""
    recorder = Recorder(database)
    for each in windows:
        ids = TimeOrderedIds(clock=lambda: each.ended_at_milliseconds / 1000)  # noqa: B023 - used at once
        WindowRecorder(recorder.take, ids).on_window(each)
    settled(database)


def settled(database: Database) -> None:
    done, _ = wait([database.submit(lambda _session: None)], timeout=10)
    assert done


def told(database: Database, *group_by: str, **filters: Any) -> dict[tuple[Any, ...], EngineAcceptance]:
    with database.read() as session:
        return dict(engine_acceptance(session, RequestFilters(**filters), group_by))
