from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database import Database
from app.instances.calibration import CalibrationBook

LAUNCH = ("p", 3, "b1", "CUDA0,CUDA1")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'p.db'}")
    database.migrate()
    database.start()
    yield database
    database.close()


async def test_figures_come_back_for_the_same_launch_and_no_other(database: Database) -> None:
    book = CalibrationBook(database)
    figures = {"CUDA0": {"compute": 5, "overhead": 6}, "host": {"compute": 7}}
    await book.write(*LAUNCH, figures)
    assert book.measured(*LAUNCH) == figures
    for position, other in enumerate(("q", 4, "b2", "CUDA0")):
        launch = [*LAUNCH]
        launch[position] = other
        assert book.measured(*launch) == {}


async def test_newer_figures_replace_older_ones(database: Database) -> None:
    book = CalibrationBook(database)
    await book.write(*LAUNCH, {"CUDA0": {"compute": 5, "overhead": 6}})
    await book.write(*LAUNCH, {"CUDA0": {"compute": 8}})
    assert book.measured(*LAUNCH) == {"CUDA0": {"compute": 8, "overhead": 6}}
