"""What follows on a commit is done on the writer thread: it may wait for a disk, and the event loop must not."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TypeVar

import pytest
from fakes.finished_requests import finished
from fakes.instance_records import RECORD
from sqlmodel import Session

from app.database import Database
from app.instances.archive import InstanceArchive
from app.instances.told import ToldRecord
from app.instances.unwritten import file_of_lives
from app.line_file import LineFile
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile

T = TypeVar("T")
DEADLINE_SECONDS = 30


class PromptDatabase(Database):
    """Is done before who asks goes on, as it happens where the event loop has to wait for its turn."""

    def submit(
        self,
        work: Callable[[Session], T],
        *,
        urgent: bool = True,
        settled: "Callable[[Future[T]], object] | None" = None,
    ) -> "Future[T]":
        future = super().submit(work, urgent=urgent, settled=settled)
        wait((future,), DEADLINE_SECONDS)
        return future


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = PromptDatabase(f"sqlite:///{tmp_path / 'p.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    yield database
    database.close()


def failing(_: Session) -> None:
    raise LookupError


def test_who_asks_is_told_on_the_writer_thread(database: Database) -> None:
    told: list[tuple[str, BaseException | None]] = []

    def settled(done: "Future[None]") -> None:
        told.append((threading.current_thread().name, done.exception()))

    database.submit(lambda _: None, settled=settled)
    failure = database.submit(failing, settled=settled).exception(DEADLINE_SECONDS)
    assert told == [("database-writer", None), ("database-writer", failure)]


async def test_rows_that_are_refused_are_spilled_on_the_writer_thread(database: Database, tmp_path: Path) -> None:
    threads: list[str] = []

    class Spill(SpillFile):
        def sync(self) -> None:
            threads.append(threading.current_thread().name)
            super().sync()

    database.submit(lambda session: session.connection().exec_driver_sql("DROP TABLE request")).result()
    recorder = Recorder(database, spill=Spill(tmp_path / "spill"))
    recorder.take(finished())
    assert set(threads) == {"database-writer"}


async def test_the_file_of_lives_is_emptied_on_the_writer_thread(database: Database, tmp_path: Path) -> None:
    threads: list[str] = []
    lives = file_of_lives(tmp_path / "instances.spill")

    class File(LineFile[ToldRecord]):
        def clear(self) -> None:
            threads.append(threading.current_thread().name)
            super().clear()

    file = File(lives.path, encode=lives._encode, decode=lives._decode, bytes_most=1 << 20, bytes_reserved=4096)
    file.open()
    file.append([ToldRecord.of(RECORD, 1)])
    file.close()
    archive = InstanceArchive(database, file)
    await archive.close_earlier_lives()
    assert set(threads) == {"database-writer"}
    await archive.close()
