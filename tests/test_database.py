"""The one writer thread, the readers, and how the file is opened."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlmodel import Session, select

from app.database import Database
from app.errors import DatabaseUnavailable, SettingsInvalid
from app.profiles.tables import ProfileRevisionRow, ProfileRow
from app.sqlite_file import unavailable

DEADLINE_SECONDS = 10


def add(profile_id: str, revision: int = 1) -> Callable[[Session], str]:
    def work(session: Session) -> str:
        session.add(ProfileRow(id=profile_id, revision=revision, created_at_milliseconds=0))
        return profile_id

    return work


def ids(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.exec(select(ProfileRow.id).order_by(ProfileRow.id)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "paceline.db"


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    """Lingers far longer than any test waits: whatever is committed was committed for a reason."""
    database = Database(f"sqlite:///{file}", linger_seconds=600)
    database.migrate()
    database.start()
    yield database
    database.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://localhost/x", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true", "nonsense", ""],
)
def test_only_sqlite_files_are_accepted(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="PACELINE_DATABASE_URL"):
        Database(url)


def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        Database("postgresql://someone:secret-word@localhost/x")
    assert "secret-word" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    with pytest.raises(DatabaseUnavailable, match="in the way"):
        Database(f"sqlite:///{tmp_path / 'in the way' / 'deeper' / 'paceline.db'}")


def test_the_future_resolves_after_commit_so_a_reader_sees_the_row(database: Database) -> None:
    seen: list[list[str]] = []
    told = threading.Event()

    def look(_: Future[str]) -> None:
        seen.append(ids(database))
        told.set()

    database.submit(add("one")).add_done_callback(look)
    assert told.wait(DEADLINE_SECONDS)
    assert seen == [["one"]]


async def test_write_is_the_awaited_form(database: Database) -> None:
    assert await database.write(add("one")) == "one"
    assert ids(database) == ["one"]


def test_the_writer_is_one_thread_with_a_name(database: Database) -> None:
    names = {database.submit(lambda _: threading.current_thread().name).result(DEADLINE_SECONDS) for _ in range(3)}
    assert names == {"database-writer"}


def test_work_that_can_wait_joins_the_transaction_of_urgent_work(database: Database) -> None:
    sessions: list[Session] = []

    def remember(session: Session) -> None:
        sessions.append(session)

    patient = [database.submit(remember, urgent=False) for _ in range(3)]
    assert database.backlog == 3
    assert not any(future.done() for future in patient)
    database.submit(remember).result(DEADLINE_SECONDS)
    for future in patient:
        future.result(DEADLINE_SECONDS)
    assert len(sessions) == 4
    assert all(session is sessions[0] for session in sessions)
    assert database.backlog == 0


def test_work_that_can_wait_does_not_wait_for_ever(file: Path) -> None:
    database = Database(f"sqlite:///{file}", linger_seconds=0.01)
    database.migrate()
    database.start()
    assert database.submit(add("one"), urgent=False).result(DEADLINE_SECONDS) == "one"
    database.close()


def test_a_failing_piece_hurts_no_other_of_its_batch(database: Database) -> None:
    def half_then_fail(session: Session) -> None:
        session.add(ProfileRow(id="half", revision=1, created_at_milliseconds=0))
        session.flush()
        raise LookupError("no")

    first = database.submit(add("first"), urgent=False)
    broken = database.submit(half_then_fail, urgent=False)
    twice = database.submit(add("first"), urgent=False)  # fails at its flush, after the function returned
    last = database.submit(add("last"))
    assert (first.result(DEADLINE_SECONDS), last.result(DEADLINE_SECONDS)) == ("first", "last")
    with pytest.raises(LookupError):
        broken.result(DEADLINE_SECONDS)
    with pytest.raises(IntegrityError):
        twice.result(DEADLINE_SECONDS)
    assert ids(database) == ["first", "last"]


def test_a_lost_transaction_is_told_to_everyone_in_it(database: Database) -> None:
    def lose(session: Session) -> None:
        session.connection().exec_driver_sql("ROLLBACK")  # what SQLite does by itself when the disk is full

    futures = [
        database.submit(add("first"), urgent=False),
        database.submit(lose, urgent=False),
        database.submit(add("last")),
    ]
    for future in futures:
        with pytest.raises(DatabaseUnavailable):
            future.result(DEADLINE_SECONDS)
    assert ids(database) == []
    assert database.submit(add("later")).result(DEADLINE_SECONDS) == "later"


def test_objects_that_work_returns_are_readable_afterwards(database: Database) -> None:
    database.submit(add("one", 5)).result(DEADLINE_SECONDS)
    row = database.submit(lambda session: session.get(ProfileRow, "one")).result(DEADLINE_SECONDS)
    assert row is not None
    assert row.revision == 5


def test_cancelled_work_is_skipped(database: Database) -> None:
    future = database.submit(add("never"), urgent=False)
    assert future.cancel()
    database.submit(add("one")).result(DEADLINE_SECONDS)
    assert ids(database) == ["one"]


def test_readers_cannot_write(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="readonly"), database.read() as session:
        session.connection().execute(text("DELETE FROM profile"))
    assert ids(database) == []


def test_a_reader_keeps_its_snapshot_while_others_write(database: Database) -> None:
    with database.read() as session:
        assert session.exec(select(ProfileRow.id)).all() == []
        database.submit(add("one")).result(DEADLINE_SECONDS)
        assert session.exec(select(ProfileRow.id)).all() == []
    assert ids(database) == ["one"]


def test_a_reader_that_fails_half_way_leaves_no_snapshot_behind(database: Database) -> None:
    for name in ("one", "two", "three"):
        database.submit(add(name)).result(DEADLINE_SECONDS)
    half_read = []

    def fail_half_way() -> None:
        with database.read() as session:
            half_read.append(iter(session.connection().exec_driver_sql("SELECT id FROM profile")))
            next(half_read[0])
            raise LookupError

    with pytest.raises(LookupError):
        fail_half_way()
    database.submit(add("four")).result(DEADLINE_SECONDS)
    assert len(ids(database)) == 4, "the snapshot of whoever failed"


def test_foreign_keys_are_enforced(database: Database) -> None:
    def orphan(session: Session) -> None:
        session.add(ProfileRevisionRow(profile_id="nobody", revision=1, document="{}", created_at_milliseconds=0))

    with pytest.raises(IntegrityError):
        database.submit(orphan).result(DEADLINE_SECONDS)


@pytest.mark.parametrize(("pragma", "value"), [("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 1)])
def test_every_connection_is_set_up(database: Database, pragma: str, value: object) -> None:
    def ask(session: Session) -> object:
        return session.connection().execute(text(f"PRAGMA {pragma}")).scalar()

    assert database.submit(ask).result(DEADLINE_SECONDS) == value
    with database.read() as session:
        assert ask(session) == value


def test_the_file_is_in_wal_mode_on_disk(database: Database, file: Path) -> None:
    database.submit(add("one")).result(DEADLINE_SECONDS)
    assert file.with_name(file.name + "-wal").exists()


def test_close_writes_what_waits_and_then_refuses(database: Database, file: Path) -> None:
    future = database.submit(add("patient"), urgent=False)
    database.close()
    database.close()
    assert future.result(0) == "patient"
    with pytest.raises(DatabaseUnavailable, match="closed"):
        database.submit(add("late"))
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT id FROM profile").fetchall() == [("patient",)]
    connection.close()


def test_a_write_waits_for_another_program(database: Database, file: Path) -> None:
    """Longer than SQLite waits in one turn."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        future = database.submit(add("patient"))
        with pytest.raises(TimeoutError):
            future.result(0.3)
        other.execute("ROLLBACK")
    assert future.result(DEADLINE_SECONDS) == "patient"


@pytest.mark.parametrize("is_begun", [True, False], ids=["waits-already", "comes-later"])
def test_who_hurries_waits_for_another_program_once_and_not_for_each_piece(
    is_begun: bool, database: Database, file: Path
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = database.submit(add("waits"))
        if is_begun:
            with pytest.raises(TimeoutError):
                first.result(0.05)
        began = time.monotonic()
        database.hurry(0.2)
        for number in range(3):
            with pytest.raises(DatabaseUnavailable, match="locked"):
                database.submit(add(str(number))).result(DEADLINE_SECONDS)
        with pytest.raises(DatabaseUnavailable, match="locked"):
            first.result(0)
        database.close()
        assert 0.2 <= time.monotonic() - began < 1


def test_a_damaged_file_is_said_with_a_way_out(file: Path) -> None:
    database = Database(f"sqlite:///{file}", linger_seconds=0.01)
    database.migrate()
    database.start()
    database.submit(add("one")).result(DEADLINE_SECONDS)
    database.close()
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xff" * (file.stat().st_size - 4096))
    database = Database(f"sqlite:///{file}", linger_seconds=0.01)
    with pytest.raises(DatabaseUnavailable, match="its file is damaged"):
        ids(database)
    database.close()


def test_what_is_wrong_with_a_statement_is_not_blamed_on_the_file(database: Database) -> None:
    with pytest.raises(ProgrammingError), database.read() as session:
        session.connection().exec_driver_sql("SELECT ?", ())


def test_one_question_too_many_is_said() -> None:
    assert "too many questions" in unavailable(NoConnection()).message


def test_close_without_start_cancels_what_waits(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    future = database.submit(add("never"))
    database.close()
    assert future.cancelled()
