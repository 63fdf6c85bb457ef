from dataclasses import replace
from datetime import UTC, datetime

from fakes.instance_records import RECORD

from app.database import Database
from app.instances.archive import InstanceArchive
from app.instances.state import InstanceState


async def written(database: Database) -> None:
    await database.write(lambda _: None)


async def test_a_record_comes_back_as_it_was(database: Database) -> None:
    archive = InstanceArchive(database)
    archive.store(RECORD)
    await written(database)
    assert archive.get(7) == RECORD
    assert archive.get(8) is None


async def test_the_newest_record_of_a_life_wins(database: Database) -> None:
    archive = InstanceArchive(database)
    archive.store(RECORD)
    ended = replace(
        RECORD,
        state=InstanceState.FAILED,
        reason="killed-by-signal-9",
        failure={"reason": "killed-by-signal-9", "message": "It was killed.", "last_lines": ["a"]},
        stopped_at=datetime(2026, 11, 29, 13, tzinfo=UTC),
        exit_code=-9,
        pid=None,
    )
    archive.store(ended)
    await written(database)
    assert archive.newest(10) == [ended]


async def test_pages_are_newest_first_and_by_profile(database: Database) -> None:
    archive = InstanceArchive(database)
    for number in range(1, 6):
        archive.store(replace(RECORD, id=number, profile_id="p" if number % 2 else "q"))
    await written(database)
    assert [record.id for record in archive.newest(2)] == [5, 4]
    assert [record.id for record in archive.newest(2, before=4)] == [3, 2]
    assert [record.id for record in archive.newest(9, profile_id="p")] == [5, 3, 1]


async def test_lives_that_an_earlier_service_did_not_see_end(database: Database) -> None:
    archive = InstanceArchive(database)
    stopped = replace(RECORD, id=8, state=InstanceState.STOPPED, pid=None, leases=0)
    archive.store(RECORD)
    archive.store(stopped)
    await archive.close_earlier_lives()
    closed = archive.get(7)
    assert closed is not None
    assert (closed.state, closed.reason, closed.pid, closed.leases) == (InstanceState.FAILED, "service-ended", None, 0)
    assert archive.get(8) == stopped
