"""Acceptance windows, while the database takes no writes: none is lost, and each is there once."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fakes.acceptance_windows import window
from fakes.finished_requests import finished
from service import eventually
from sqlmodel import Session, col, select
from telemetry.window_rows import told

from app.database import Database
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.tables import AcceptanceWindowRow
from app.telemetry.window_hours import WindowHours
from app.telemetry.windows import RecordedWindow, WindowRecorder

DEADLINE_SECONDS = 30
YEARS_LATER_SECONDS = 2_000_000_000.0


def recorded(number: int) -> RecordedWindow:
    return RecordedWindow(number + 1, window(number))


def ids(database: Database) -> list[int]:
    with database.read() as session:
        return list(session.exec(select(AcceptanceWindowRow.id).order_by(col(AcceptanceWindowRow.id))))


def until_replayed(recorder: Recorder) -> None:
    eventually(lambda: recorder.spilled_rows == 0 or None, DEADLINE_SECONDS)


def left(path: Path, windows: Sequence[RecordedWindow]) -> None:
    """What an earlier run has left."""
    file = SpillFile(path)
    file.open()
    assert file.append(windows) == len(windows)
    file.close()


async def test_windows_wait_in_the_file_with_the_requests(database: Database, tmp_path: Path) -> None:
    recorder = Recorder(database, spill=SpillFile(tmp_path / "spill"))
    recorder.start()
    windows = WindowRecorder(recorder.take)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for number in range(4):
            recorder.on_request_finished(finished(number))
            windows.on_window(window(number))
        eventually(lambda: recorder.spilled_rows == 8 or None, DEADLINE_SECONDS)
    until_replayed(recorder)
    await recorder.flush()
    assert (told(database)[()].drafts, recorder.lost_rows) == (40, 0)
    await recorder.close()


async def test_the_next_start_takes_each_window_once(database: Database, tmp_path: Path) -> None:
    """Some of them are there already: the earlier run was killed between its commit and the end of its file."""
    first = Recorder(database)
    for number in range(3):
        first.take(recorded(number))
    await first.flush()
    left(tmp_path / "spill", [recorded(number) for number in range(1, 5)])
    recorder = Recorder(database, spill=SpillFile(tmp_path / "spill"))
    recorder.start()
    until_replayed(recorder)
    assert ids(database) == [1, 2, 3, 4, 5]
    assert (recorder.replayed_rows, recorder.lost_rows) == (2, 0)
    await recorder.close()


async def test_hours_are_put_together_only_when_all_their_windows_are_there(database: Database, tmp_path: Path) -> None:
    """Else a window that is there, and in the file as well, would be added to the sum that has it."""
    first = Recorder(database)
    for number in range(3):
        first.take(recorded(number))
    await first.flush()
    left(tmp_path / "spill", [recorded(0), recorded(3)])
    recorder = Recorder(database, spill=SpillFile(tmp_path / "spill"))
    hours = WindowHours(database, is_all_there=lambda: recorder.spilled_rows == 0, clock=lambda: YEARS_LATER_SECONDS)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.start()
        await hours.put_together()
    until_replayed(recorder)
    assert ids(database) == [1, 2, 3, 4]
    await hours.put_together()
    assert len(ids(database)) == 1
    assert told(database)[()].drafts == 40
    await recorder.close()


async def test_a_window_that_the_database_refuses_for_good_costs_no_request(database: Database, tmp_path: Path) -> None:
    """A trigger stands for whatever is wrong with it."""
    trigger = "CREATE TRIGGER no BEFORE INSERT ON acceptance_window WHEN NEW.id = 2 BEGIN SELECT RAISE(FAIL, 'no'); END"

    def refuse(session: Session) -> None:
        session.connection().exec_driver_sql(trigger)

    await database.write(refuse)
    recorder = Recorder(database, spill=SpillFile(tmp_path / "spill"))
    recorder.start()
    for number in range(3):
        recorder.take(recorded(number))
        recorder.on_request_finished(finished(number))
    await recorder.flush()
    until_replayed(recorder)
    assert ids(database) == [1, 3]
    assert (recorder.replayed_rows, recorder.lost_rows) == (5, 1)
    await recorder.close()


KILLED = """
import sys, threading, time
from pathlib import Path
from fakes.acceptance_windows import window
from app.database import Database
from app.telemetry.recorder import Recorder
from app.telemetry.spill import SpillFile
from app.telemetry.windows import RecordedWindow
folder = Path(sys.argv[1])
database = Database(f"sqlite:///{folder / 'paceline.db'}")
database.start()
recorder = Recorder(database, spill=SpillFile(folder / "telemetry.spill"))
recorder.start()
pause = threading.Event()
for number in range(1, 100_000):
    recorder.take(RecordedWindow(number, window()))
    print(number, time.monotonic(), flush=True)
    pause.wait(0.01)
"""


def test_a_kill_costs_at_most_the_windows_of_the_last_tenth_of_a_second(database: Database, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            env={"PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        moments: list[float] = []
        for line in child.stdout:
            moments.append(float(line.split()[1]))
            if len(moments) == 15:
                other.execute("BEGIN IMMEDIATE")
            if len(moments) == 60:
                break
        killed_at = time.monotonic()
        child.kill()
        assert child.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        child.stdout.close()
    recorder = Recorder(database, spill=SpillFile(tmp_path / "telemetry.spill"))
    recorder.start()
    assert recorder.spilled_rows > 0
    until_replayed(recorder)
    # The second tenth is for a busy machine, on which a thread that is due waits for its turn.
    due = sum(moment < killed_at - 0.1 - 0.1 for moment in moments)
    assert due > 30
    assert ids(database)[:due] == list(range(1, due + 1))
    asyncio.run(recorder.close())
