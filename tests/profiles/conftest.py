"""A real database and a catalog on it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database import Database
from app.events import Event
from app.profiles.catalog import ProfileCatalog


class World:
    """A catalog with what it published, what runs, and a clock that the test moves."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.events: list[Event] = []
        self.running: set[str] = set()
        self.now_seconds = 1_700_000_000.0
        self._news = asyncio.Event()
        self.catalog = self.restarted()

    def restarted(self) -> ProfileCatalog:
        """A new catalog on the same database, as after a restart."""
        catalog = ProfileCatalog(
            self.database, self._publish, in_use=self.running.__contains__, clock=lambda: self.now_seconds
        )
        catalog.load()
        return catalog

    async def published(self, event: Event) -> None:
        """Wait until the event has been told."""
        async with asyncio.timeout(10):
            while event not in self.events:
                self._news.clear()
                await self._news.wait()

    def _publish(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    database = Database(f"sqlite:///{tmp_path / 'paceline.db'}")
    database.migrate()
    database.start()
    yield World(database)
    database.close()
