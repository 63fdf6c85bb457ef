"""A real, migrated database for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from access.shelf import Shelf

from app.database import Database


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}", linger_seconds=0.01)
    database.migrate()
    database.start()
    yield Shelf(database)
    database.close()
