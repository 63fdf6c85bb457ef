"""How the database keeps up, as series: of a real one."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import Session

from app.database import Database
from app.metrics.collectors import MetricsRegistry
from app.metrics.writing import DatabaseCollector, rows_of
from app.telemetry.tables import LabelRow


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/paceline.db")
    database.migrate()
    database.start()
    yield database
    database.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def nothing(_: Session) -> None:
    pass


def collector_of(database: Database, clock: Clock) -> tuple[DatabaseCollector, MetricsRegistry]:
    collector = DatabaseCollector(
        database.path, lambda: rows_of(database), lambda: database.submit(nothing), count_seconds=0.01, clock=clock
    )
    registry = MetricsRegistry()
    registry.register(collector)
    return collector, registry


def test_the_size_is_that_of_the_file_and_its_log(database: Database) -> None:
    _, registry = collector_of(database, Clock())
    parts = [database.path, Path(f"{database.path}-wal")]
    database.submit(nothing).result(10)
    assert registry.get_sample_value("paceline_database_size_bytes") == sum(part.stat().st_size for part in parts)


async def test_rows_are_counted_by_table(database: Database) -> None:
    collector, registry = collector_of(database, Clock())

    def labels() -> float | None:
        return registry.get_sample_value("paceline_database_rows", {"table": "label"})

    assert labels() is None
    await database.write(lambda session: session.add_all([LabelRow(text="a"), LabelRow(text="b")]))
    counting = asyncio.create_task(collector.run())
    try:
        async with asyncio.timeout(10):
            while labels() != 2:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
    finally:
        counting.cancel()
        await asyncio.wait({counting})
    assert registry.get_sample_value("paceline_database_rows", {"table": "request"}) == 0


def test_the_lag_grows_while_the_writer_is_held_up(database: Database) -> None:
    clock = Clock()
    _, registry = collector_of(database, clock)

    def lag() -> float | None:
        return registry.get_sample_value("paceline_database_writer_lag_seconds")

    assert lag() is None or lag() == 0
    is_held, go_on = threading.Event(), threading.Event()

    def hold(_: Session) -> None:
        is_held.set()
        go_on.wait(10)

    held = database.submit(hold)
    assert is_held.wait(10)
    lag()  # hands over its piece
    clock.now = 3.0
    assert lag() == 3.0
    clock.now = 5.0
    assert lag() == 5.0
    go_on.set()
    held.result(10)
    database.submit(nothing).result(10)
    clock.now = 9.0
    assert lag() == 5.0  # what the last one took
    database.submit(nothing).result(10)
    assert lag() == 0.0


def test_a_closed_database_has_a_last_lag(database: Database) -> None:
    _, registry = collector_of(database, Clock())
    registry.get_sample_value("paceline_database_writer_lag_seconds")
    database.close()
    assert registry.get_sample_value("paceline_database_writer_lag_seconds") == 0
