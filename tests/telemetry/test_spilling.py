"""A database that takes no writes: no request is lost, and each is there once when it does."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.finished_requests import PLAIN_CONTEXT, finished
from fixtures.small_disk import may_mount, run_on_small_disk
from service import eventually
from sqlmodel import Session, col, select

from app.database import Database
from app.findings import Finding
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.tables import RequestRow

DEADLINE_SECONDS = 30


@pytest.fixture
def spill_path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.spill"


@pytest.fixture
async def recorder(database: Database, spill_path: Path) -> Recorder:
    recorder = Recorder(database, spill=SpillFile(spill_path))
    recorder.start()
    return recorder


@pytest.fixture
def lock(database: Database) -> Iterator[sqlite3.Connection]:
    """A second connection that holds the database until it rolls back."""
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def ids(database: Database) -> list[int]:
    with database.read() as session:
        return list(session.exec(select(RequestRow.id).order_by(col(RequestRow.id))))


def until(is_so: Callable[[], bool]) -> None:
    eventually(lambda: is_so() or None, DEADLINE_SECONDS)


async def test_rows_wait_in_the_file_while_another_holds_the_database(
    recorder: Recorder, database: Database, lock: sqlite3.Connection
) -> None:
    events = [finished(number) for number in range(1200)]
    began = time.monotonic()
    for event in events[:700]:
        recorder.on_request_finished(event)
    until(lambda: recorder.spilled_rows == 700)
    assert time.monotonic() - began < 1, "spilled only when the database gave up"
    for event in events[700:]:
        recorder.on_request_finished(event)
    until(lambda: recorder.spilled_rows == 1200)
    lock.execute("ROLLBACK")
    until(lambda: recorder.spilled_rows == 0)
    assert ids(database) == [event.request_id for event in events]
    assert recorder.lost_rows == 0
    assert recorder.findings() == []
    await recorder.close()


async def test_nothing_is_spilled_while_the_database_keeps_up(recorder: Recorder, database: Database) -> None:
    for number in range(100):
        recorder.on_request_finished(finished(number))
    await recorder.flush()
    assert len(ids(database)) == 100
    assert (recorder.spilled_rows, recorder.replayed_rows) == (0, 0)
    await recorder.close()


async def test_the_next_start_takes_what_an_earlier_one_left_and_each_row_once(
    database: Database, spill_path: Path
) -> None:
    """Some of it is there already: the earlier run was killed between its commit and the end of its file."""
    first = Recorder(database)
    for number in range(5):
        first.on_request_finished(finished(number))
    await first.flush()
    left = SpillFile(spill_path)
    left.open()
    left.append([finished(number, context=PLAIN_CONTEXT) for number in range(3, 9)])
    left.close()
    recorder = Recorder(database, spill=SpillFile(spill_path))
    recorder.start()
    until(lambda: recorder.spilled_rows == 0)
    assert ids(database) == [finished(number).request_id for number in range(9)]
    assert (recorder.replayed_rows, recorder.lost_rows) == (4, 0)
    await recorder.close()


@pytest.mark.slow
async def test_an_obstacle_is_told_once_and_a_closing_service_does_not_wait_for_it(
    database: Database, spill_path: Path, lock: sqlite3.Connection
) -> None:
    """Five seconds, which a writer waits for others: then the piece fails that had been queued. Earns the finding."""
    told: list[Finding] = []
    recorder = Recorder(database, spill=SpillFile(spill_path))
    recorder.start(told.append)
    recorder.on_request_finished(finished(0))
    until(lambda: any("locked" in found.message for found in recorder.findings()))
    recorder.on_request_finished(finished(1))
    (found,) = recorder.findings()
    assert (found.rule, found.severity) == ("requests-not-recorded-yet", "warning")
    assert [found.rule for found in told] == ["requests-not-recorded-yet"]
    began = time.monotonic()
    await recorder.close()
    assert time.monotonic() - began < 2
    lock.execute("ROLLBACK")
    left = SpillFile(spill_path)
    left.open()
    assert left.front(10).values == [finished(0), finished(1)]
    left.close()


async def test_a_file_that_is_full_leaves_the_rest_in_memory_up_to_its_bound(
    database: Database, spill_path: Path, lock: sqlite3.Connection
) -> None:
    spill = SpillFile(spill_path, bytes_most=5000)
    recorder = Recorder(database, waiting_most=10, spill=spill)
    recorder.start()
    for number in range(4):
        recorder.on_request_finished(finished(number))
    until(lambda: recorder.spilled_rows == 4)
    for number in range(4, 30):
        recorder.on_request_finished(finished(number))
    lost = recorder.lost_rows
    assert lost >= 10
    assert [found.rule for found in recorder.findings()][-1] == "requests-unrecorded"
    lock.execute("ROLLBACK")
    until(lambda: len(ids(database)) == 30 - lost)
    until(lambda: recorder.spilled_rows == 0)
    assert recorder.lost_rows == lost
    await recorder.close()


@pytest.mark.parametrize("is_left", [True, False], ids=["left-by-an-earlier-run", "told"])
async def test_a_request_that_the_database_refuses_for_good_costs_no_other(
    is_left: bool, database: Database, spill_path: Path
) -> None:
    """A trigger stands for whatever is wrong with one row."""
    bad_id = finished(3).request_id
    trigger = f"CREATE TRIGGER no BEFORE INSERT ON request WHEN NEW.id = {bad_id} BEGIN SELECT RAISE(FAIL, 'no'); END"

    def refuse(session: Session) -> None:
        session.connection().exec_driver_sql(trigger)

    await database.write(refuse)
    events = [finished(number) for number in range(6)]
    if is_left:
        left = SpillFile(spill_path)
        left.open()
        left.append(events)
        left.close()
    recorder = Recorder(database, spill=SpillFile(spill_path))
    recorder.start()
    for event in [] if is_left else events:
        recorder.on_request_finished(event)
    await recorder.flush()
    until(lambda: recorder.spilled_rows == 0)
    assert ids(database) == [finished(number).request_id for number in (0, 1, 2, 4, 5)]
    assert (recorder.replayed_rows, recorder.lost_rows) == (5, 1)
    assert [found.rule for found in recorder.findings()][-1] == "requests-unrecorded"
    await recorder.close()


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_fails_when_each_row_is_there_once(seed: int, database: Database, spill_path: Path) -> None:
    """The table comes and goes, others hold the database for a moment, bursts come, and the file is small."""
    chance = random.Random(seed)  # noqa: S311
    recorder = Recorder(database, spill=SpillFile(spill_path, bytes_most=400_000))
    recorder.start()
    count, is_there = 0, True
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        for _ in range(15):
            for _ in range(chance.choice((0, 1, 5, 60))):
                recorder.on_request_finished(finished(count))
                count += 1
            await asyncio.sleep(chance.choice((0, 0.01, 0.09)))
            if chance.random() < 0.3:
                names = ("request", "elsewhere") if is_there else ("elsewhere", "request")
                other.execute(f"ALTER TABLE {names[0]} RENAME TO {names[1]}")
                is_there = not is_there
            elif chance.random() < 0.3:
                other.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(0.1)
                other.execute("ROLLBACK")
        if not is_there:
            other.execute("ALTER TABLE elsewhere RENAME TO request")
    until(lambda: recorder.spilled_rows == 0)
    await recorder.flush()
    assert ids(database) == [finished(number).request_id for number in range(count)]
    assert recorder.lost_rows == 0
    await recorder.close()


KILLED = """
import sys, threading, time
from pathlib import Path
from fakes.finished_requests import finished
from app.database import Database
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
folder = Path(sys.argv[1])
database = Database(f"sqlite:///{folder / 'paceline.db'}")
database.start()
recorder = Recorder(database, spill=SpillFile(folder / "telemetry.spill"))
recorder.start()
pause = threading.Event()
for number in range(100_000):
    recorder.on_request_finished(finished(number))
    print(number, time.monotonic(), flush=True)
    pause.wait(0.002)
"""


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_kill_costs_at_most_what_ended_in_the_last_tenth_of_a_second(
    is_locked: bool, database: Database, spill_path: Path, tmp_path: Path
) -> None:
    lock = sqlite3.connect(database.path, isolation_level=None)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    told: list[tuple[int, float]] = []
    for line in child.stdout:
        number, moment = line.split()
        told.append((int(number), float(moment)))
        if is_locked and len(told) == 30:
            lock.execute("BEGIN IMMEDIATE")
        if len(told) == 200:
            break
    killed_at = time.monotonic()
    child.kill()
    told += [(int(number), float(moment)) for number, moment in map(str.split, child.stdout)]
    assert child.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    child.stdout.close()
    lock.close()

    recorder = Recorder(database, spill=SpillFile(spill_path))
    recorder.start()
    assert (recorder.spilled_rows > 0) or not is_locked
    until(lambda: recorder.spilled_rows == 0)
    there = set(ids(database))
    # The allowance is for a busy machine, on which a thread that is due waits for its turn.
    due = {finished(number).request_id for number, moment in told if moment < killed_at - 0.1 - 0.1}
    assert len(due) > 50
    assert due <= there
    asyncio.run(recorder.close())


FULL_DISK = """
import asyncio, json, sys
from pathlib import Path
from fakes.acceptance_windows import window
from fakes.finished_requests import finished
from service import eventually
from app.database import Database
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.windows import RecordedWindow

folder = Path(sys.argv[1])
database = Database(f"sqlite:///{folder / 'paceline.db'}", linger_seconds=0.01)
database.migrate()
database.start()
recorder = Recorder(database, spill=SpillFile(folder / "telemetry.spill", bytes_reserved=1_000_000))
recorder.start()
filler = open(folder / "filler", "wb", buffering=0)
try:
    while True:
        filler.write(bytes(4096))
except OSError:
    pass

async def main():
    for number in range(500):
        recorder.on_request_finished(finished(number, client_request_id="x" * 200))
        if number % 100 == 99:
            recorder.take(RecordedWindow(number, window()))
            await recorder.flush()
    spilled = recorder.spilled_rows
    found = [(each.rule, each.message) for each in recorder.findings()]
    filler.truncate(0)
    eventually(lambda: recorder.spilled_rows == 0 or None)
    # No request has to end for it.
    eventually(lambda: recorder.findings() == [] or None)
    await recorder.close()
    with database.read() as session:
        count = "SELECT (SELECT count(*) FROM request), (SELECT count(*) FROM acceptance_window)"
        rows = list(session.connection().exec_driver_sql(count).one())
    print(json.dumps({"spilled": spilled, "rows": rows, "lost": recorder.lost_rows, "found": found}))

asyncio.run(main())
database.close()
"""


@pytest.mark.slow
@may_mount
def test_a_full_disk_loses_no_row(tmp_path: Path) -> None:
    """Earns its name, on a file system of two megabytes, full to its last page."""
    said, log = run_on_small_disk(FULL_DISK, tmp_path)
    assert (said["rows"], said["lost"]) == ([500, 5], 0), log
    assert said["spilled"] > 0
    assert [rule for rule, _ in said["found"]] == ["requests-not-recorded-yet"]
    assert "full" in said["found"][0][1]
