"""Records of lives, while the database takes no writes: none is lost, and no old one replaces a newer one."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.instance_records import RECORD, STOPPED
from fixtures.small_disk import may_mount, run_on_small_disk
from service import eventually
from sqlmodel import Session

from app.database import Database
from app.instances.archive import InstanceArchive
from app.instances.state import InstanceState
from app.instances.told import ToldRecord
from app.instances.unwritten import file_of_lives

DEADLINE_SECONDS = 30


@pytest.fixture
def lock(database: Database) -> Iterator[sqlite3.Connection]:
    """A second connection, to hold the database with."""
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "instances.spill"


def states(database: Database) -> dict[int, str]:
    """As they stand in the database."""
    with closing(sqlite3.connect(database.path)) as connection:
        return dict(connection.execute("SELECT id, state FROM instance ORDER BY id").fetchall())


async def until(is_so: Callable[[], bool]) -> None:
    """While the event loop goes on."""
    await asyncio.to_thread(eventually, lambda: is_so() or None, DEADLINE_SECONDS)


def file_has(path: Path, text: str) -> bool:
    return text.encode() in path.read_bytes().partition(b"\0")[0]


def left(path: Path) -> list[ToldRecord]:
    file = file_of_lives(path)
    file.open()
    found = list(file.all())
    file.close()
    return found


def leave(path: Path, *told: ToldRecord) -> None:
    """What an earlier run has left."""
    file = file_of_lives(path)
    file.open()
    assert file.append(told) == len(told)
    file.close()


async def next_start(database: Database, path: Path) -> InstanceArchive:
    archive = InstanceArchive(database, file_of_lives(path))
    await archive.close_earlier_lives()
    return archive


async def test_what_is_not_written_is_shown(database: Database, lock: sqlite3.Connection) -> None:
    archive = InstanceArchive(database)
    lock.execute("BEGIN IMMEDIATE")
    for number in range(1, 5):
        archive.store(replace(RECORD, id=number, profile_id="p" if number % 2 else "q"))
    archive.store(replace(STOPPED, id=1))
    assert archive.get(1) == replace(STOPPED, id=1)
    assert archive.get(9) is None
    assert [record.id for record in archive.newest(2)] == [4, 3]
    assert [record.id for record in archive.newest(9, before=4)] == [3, 2, 1]
    assert [record.id for record in archive.newest(9, profile_id="p")] == [3, 1]
    assert states(database) == {}
    lock.execute("ROLLBACK")
    await database.write(lambda _: None)
    assert states(database) == {1: "stopped", 2: "ready", 3: "ready", 4: "ready"}
    archive.store(replace(STOPPED, id=2))
    assert [record.state for record in archive.newest(9)] == ["ready", "ready", "stopped", "stopped"]


async def test_what_the_database_refused_is_written_when_it_takes_writes(
    database: Database, lock: sqlite3.Connection, path: Path
) -> None:
    archive = await next_start(database, path)
    lock.execute("BEGIN IMMEDIATE")
    database.hurry(0)  # the writer gives up at once
    running = asyncio.create_task(archive.run())
    archive.store(RECORD)
    archive.store(replace(RECORD, id=8))
    await until(lambda: file_has(path, '"id": 8'))
    archive.store(STOPPED)
    await until(lambda: file_has(path, '"stopped"'))
    assert states(database) == {}
    lock.execute("ROLLBACK")
    await until(lambda: states(database) == {7: "stopped", 8: "ready"})
    await until(lambda: left(path) == [])
    running.cancel()
    await archive.close()


async def test_what_was_not_written_at_the_end_is_there_after_the_next_start(
    database: Database, lock: sqlite3.Connection, path: Path
) -> None:
    archive = await next_start(database, path)
    lock.execute("BEGIN IMMEDIATE")
    database.hurry(0.05)
    archive.store(RECORD)
    archive.store(replace(RECORD, id=8))
    archive.store(STOPPED)
    await archive.close()
    assert states(database) == {}
    lock.execute("ROLLBACK")

    later = await next_start(database, path)
    assert later.get(7) == STOPPED
    unseen = later.get(8)
    assert unseen is not None
    assert (unseen.state, unseen.reason, unseen.pid, unseen.leases) == (InstanceState.FAILED, "service-ended", None, 0)
    assert states(database) == {7: "stopped", 8: "failed"}
    await later.close()
    assert left(path) == []


async def test_an_old_record_in_the_file_replaces_none_that_is_newer(database: Database, path: Path) -> None:
    """The earlier run was killed between its commit and the end of its file."""
    archive = InstanceArchive(database)
    for record in (RECORD, STOPPED, replace(RECORD, id=8)):
        archive.store(record)
    await InstanceArchive(database).close_earlier_lives()
    leave(path, ToldRecord.of(RECORD, 1), ToldRecord.of(replace(RECORD, id=8, state=InstanceState.LOADING), 2))
    later = await next_start(database, path)
    assert later.get(7) == STOPPED
    assert states(database) == {7: "stopped", 8: "failed"}
    await later.close()


async def test_the_end_of_a_life_counts_more_than_that_nobody_saw_it(database: Database, path: Path) -> None:
    """A start could not read the file; the next one can."""
    archive = InstanceArchive(database)
    archive.store(RECORD)
    await InstanceArchive(database).close_earlier_lives()
    assert states(database) == {7: "failed"}
    leave(path, ToldRecord.of(STOPPED, 2))
    later = await next_start(database, path)
    assert later.get(7) == STOPPED
    await later.close()


async def test_a_row_of_an_earlier_version_is_read_and_replaced(database: Database) -> None:
    """Which had no number."""
    archive = InstanceArchive(database)
    archive.store(RECORD)
    await database.write(lambda _: None)
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("UPDATE instance SET document = json_remove(document, '$.number')")
    later = InstanceArchive(database)
    assert later.get(7) == RECORD
    later.store(STOPPED)
    await database.write(lambda _: None)
    assert later.get(7) == STOPPED
    assert states(database) == {7: "stopped"}


async def test_a_record_that_the_database_refuses_for_good_costs_no_other(database: Database, path: Path) -> None:
    """A trigger stands for whatever is wrong with it."""
    trigger = "CREATE TRIGGER no BEFORE INSERT ON instance WHEN NEW.id = 2 BEGIN SELECT RAISE(FAIL, 'no'); END"

    def refuse(session: Session) -> None:
        session.connection().exec_driver_sql(trigger)

    await database.write(refuse)
    archive = await next_start(database, path)
    running = asyncio.create_task(archive.run())
    for number in range(1, 5):
        archive.store(replace(RECORD, id=number))
    await until(lambda: states(database) == {1: "ready", 3: "ready", 4: "ready"})
    await until(lambda: left(path) == [])
    running.cancel()
    await archive.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed-database", "no-json"])
async def test_no_life_hears_that_it_cannot_be_recorded(is_closed: bool, database: Database, path: Path) -> None:
    archive = await next_start(database, path)
    if is_closed:
        database.close()
        archive.store(STOPPED)
        await archive.close()
        assert [told.record for told in left(path)] == [STOPPED]
    else:
        archive.store(replace(RECORD, speculation={"asked": object()}))
        archive.store(replace(RECORD, id=8))
        await archive.close()
        assert states(database) == {8: "ready"}


FULL_DISK = """
import asyncio, json, sys
from dataclasses import replace
from pathlib import Path
from fakes.instance_records import RECORD, STOPPED
from app.database import Database
from app.instances.archive import InstanceArchive
from app.instances.unwritten import file_of_lives

folder = Path(sys.argv[1])
database = Database(f"sqlite:///{folder / 'p.db'}", linger_seconds=0.01)
database.migrate()
database.start()
filler = open(folder / "filler", "wb", buffering=0)

async def main():
    archive = InstanceArchive(database, file_of_lives(folder / "instances.spill"))
    await archive.close_earlier_lives()
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
    for number in range(100):
        archive.store(replace(RECORD, id=number + 1, argv=["x" * 2000]))
        archive.store(replace(STOPPED, id=number + 1, argv=["x" * 2000]))
    await archive.close()
    written = len(archive.newest(1000)) - len(archive._unwritten)
    filler.truncate(0)
    later = InstanceArchive(database, file_of_lives(folder / "instances.spill"))
    await later.close_earlier_lives()
    await later.close()
    print(json.dumps({"written": written, "states": [record.state for record in later.newest(1000)]}))

asyncio.run(main())
database.close()
"""


@pytest.mark.slow
@may_mount
def test_a_full_disk_loses_no_end_of_a_life(tmp_path: Path) -> None:
    """Earns its name, on a file system of two megabytes, full to its last page."""
    said, log = run_on_small_disk(FULL_DISK, tmp_path)
    assert said["states"] == ["stopped"] * 100, log
    assert said["written"] < 100
