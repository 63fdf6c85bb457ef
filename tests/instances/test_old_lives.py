"""Lives that ended long ago go; the newest of each profile, and what may still run, stay."""

from dataclasses import replace
from datetime import UTC, datetime

from fakes.instance_records import RECORD, STOPPED

from app.database import Database
from app.identifiers import first_id_at
from app.instances.archive import InstanceArchive
from app.instances.old_lives import delete_old_lives
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState

UNSEEN = replace(RECORD, state=InstanceState.FAILED, reason="service-ended", pid=None, leases=0)


def at(day: int) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC)


async def left(database: Database, records: list[InstanceRecord], before: datetime, most: int = 100) -> list[int]:
    archive = InstanceArchive(database)
    for record in records:
        archive.store(record)
    await archive.close()
    before_milliseconds = int(before.timestamp() * 1000)
    await database.write(lambda session: delete_old_lives(session, before_milliseconds, most))
    return [record.id for record in reversed(archive.newest(100))]


def ended(number: int, day: int, profile_id: str = "p") -> InstanceRecord:
    return replace(STOPPED, id=number, profile_id=profile_id, created_at=at(day), stopped_at=at(day + 1))


async def test_what_ended_before_goes_but_for_the_newest_of_a_profile(database: Database) -> None:
    records = [ended(1, 1), ended(2, 3), ended(3, 3, "other"), ended(4, 5), ended(5, 10)]
    assert await left(database, records, at(5)) == [3, 4, 5]


async def test_of_later_lives_none_is_looked_at(database: Database) -> None:
    """Ids sort by time, so a look at the old ones reads no others."""
    later = replace(ended(first_id_at(int(at(5).timestamp() * 1000)), 1), profile_id="p")
    assert await left(database, [ended(1, 1), later, replace(later, id=later.id + 1)], at(5)) == [
        later.id,
        later.id + 1,
    ]


async def test_a_life_that_ended_later_stays_however_early_it_began(database: Database) -> None:
    long = replace(STOPPED, id=1, created_at=at(1), stopped_at=at(20))
    assert await left(database, [long, ended(2, 21)], at(10)) == [1, 2]


async def test_what_ended_unseen_ended_before_the_next_of_its_profile(database: Database) -> None:
    records = [replace(UNSEEN, id=1, created_at=at(1)), ended(2, 3), replace(UNSEEN, id=3, created_at=at(5))]
    assert await left(database, [*records, ended(4, 20)], at(10)) == [3, 4]


async def test_what_is_not_over_stays(database: Database) -> None:
    assert await left(database, [replace(RECORD, id=1, created_at=at(1)), ended(2, 20)], at(10)) == [1, 2]


async def test_the_oldest_go_first_and_not_more_at_once_than_is_asked(database: Database) -> None:
    assert await left(database, [ended(number, number) for number in range(1, 8)], at(10), most=2) == [3, 4, 5, 6, 7]
