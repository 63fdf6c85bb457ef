"""A million rows must stay under 200 MB: here with fewer, of the same kind as `python -m bench` writes."""

import sqlite3
from contextlib import closing
from pathlib import Path

from app.database import Database
from app.telemetry.recorder import Recorder
from bench.recorder import realistic

ROWS = 20_000


async def test_a_row_and_its_share_of_the_indexes_take_under_200_bytes(tmp_path: Path) -> None:
    """Every client sends an id of its own, which is the largest part of a row: the worst there is."""
    file = tmp_path / "paceline.db"
    database = Database(f"sqlite:///{file}")
    database.migrate()
    database.start()
    recorder = Recorder(database)
    for event in realistic(ROWS, with_client_id=1.0):
        recorder.on_request_finished(event)
    await recorder.flush()
    database.close()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM request").fetchone() == (ROWS,)
    assert file.stat().st_size / ROWS < 200
