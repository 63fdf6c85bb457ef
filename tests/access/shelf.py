"""Books of keys on a real database, whose clock the test moves."""

from typing import Any

from app.access.key_book import KeyBook
from app.database import Database


class Shelf:
    """Makes books; `now_seconds` is their time."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now_seconds = 1_700_000_000.0

    def book(self, configured: str | None = None, *, metrics: str | None = None, may_be_empty: bool = True) -> KeyBook:
        """A book on the same database, loaded, as after a restart."""
        made = KeyBook(
            self.database,
            configured=configured,
            metrics=metrics,
            may_be_empty=may_be_empty,
            clock=lambda: self.now_seconds,
        )
        made.load()
        return made

    async def written(self) -> None:
        """Wait until everything handed to the database is in it."""
        await self.database.write(lambda _: None)

    def rows(self) -> list[dict[str, Any]]:
        with self.database.read() as session:
            return [dict(row) for row in session.connection().exec_driver_sql("SELECT * FROM access_key").mappings()]
