"""A migrated database of its own for each test, and a recorder that writes to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database import Database
from app.telemetry.recorder import Recorder


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    yield database
    database.close()


@pytest.fixture
def recorder(database: Database) -> Recorder:
    return Recorder(database)
