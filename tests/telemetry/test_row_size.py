"""A million rows must stay under 200 MB: here with fewer, of the same kind as `python -m bench` writes."""

from pathlib import Path

from app.database import Database
from app.telemetry.retention import Retention
from bench.recorder import EPOCH_SECONDS, SECONDS_BETWEEN
from bench.rollups import filled, used_bytes

ROWS = 20_000
# After midnight, so that there are roll-ups of the day as well.
END_SECONDS = EPOCH_SECONDS + ROWS * SECONDS_BETWEEN + 7200


def test_a_row_with_all_it_can_have_and_its_share_of_indexes_and_roll_ups_take_under_200_bytes(tmp_path: Path) -> None:
    """Every client sends an id of its own, which is the largest part of a row: the worst there is."""
    file = tmp_path / "paceline.db"
    filled(file, ROWS, EPOCH_SECONDS)
    database = Database(f"sqlite:///{file}")
    database.start()
    Retention(database, days=0, bytes_most=0, clock=lambda: END_SECONDS).keep_up()
    with database.read() as session:
        count = session.connection().exec_driver_sql
        assert count("SELECT count(*) FROM request WHERE typeof(client_request_id) = 'blob'").scalar() == ROWS
        assert count("SELECT sum(requests) FROM request_rollup WHERE hours = 1").scalar_one() > ROWS * 0.9
        assert count("SELECT count(*) FROM request_rollup WHERE hours = 24").scalar_one() > 0
    size_bytes = used_bytes(database)
    database.close()
    # Thin traffic, as here, has the most roll-ups for each row.
    assert size_bytes / ROWS < 190
