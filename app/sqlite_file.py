"""How the SQLite file is named, opened and set up, and what its errors mean."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as NoConnection

from app.errors import DatabaseUnavailable, SettingsInvalid

BUSY_MILLISECONDS = 5000


def begin_with(statement: str) -> Callable[[Connection], object]:
    """What begins a transaction with this statement."""
    return lambda connection: connection.exec_driver_sql(statement)


def engine_of(url: str, *, begin: Callable[[Connection], object], pragmas: Sequence[str], **options: Any) -> Engine:
    """Connections to the file, set up alike but for `pragmas`. `begin` is called on each before its transaction;
    `options` are those of SQLAlchemy.
    """
    engine = create_engine(url, connect_args={"timeout": BUSY_MILLISECONDS / 1000}, **options)

    # Python's sqlite3 opens transactions late and never for DDL, which breaks savepoints: BEGIN is ours.
    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        if connection.execute("PRAGMA page_count").fetchone() == (0,):
            # Only a file that is new takes it, and only before anything else.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL").close()
        always = ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={BUSY_MILLISECONDS}")
        for pragma in (*always, *pragmas):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "begin", begin)
    return engine


def file_of(url: str) -> Path:
    """The file that a URL names. Raises SettingsInvalid where it names none."""
    try:
        parsed = make_url(url)
    except ArgumentError as failure:
        raise SettingsInvalid(
            f"PACELINE_DATABASE_URL is not a URL: {url!r}; write sqlite:////path/to/file"
        ) from failure
    name = parsed.database or ""
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite") or name in ("", ":memory:") or name.startswith("file:"):
        raise SettingsInvalid(
            f"PACELINE_DATABASE_URL must name an SQLite file, like sqlite:////path/to/paceline.db; got "
            f"{parsed.render_as_string()!r}"
        )
    return Path(name)


def make_folder(path: Path) -> None:
    """Make the folder in which the file will be. Raises DatabaseUnavailable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise DatabaseUnavailable(f"the folder of the database cannot be made: {failure}") from failure


def unavailable(failure: BaseException) -> DatabaseUnavailable:
    """The error with the way out in its message."""
    if isinstance(failure, DatabaseUnavailable):
        return failure
    said = str(getattr(failure, "orig", None) or failure)
    advice = ""
    if "locked" in said:
        advice = ": another process holds it; stop that one, or name another file in PACELINE_DATABASE_URL"
    elif "malformed" in said:
        advice = ": its file is damaged; put a copy of before in its place, or move it away and begin anew"
    elif "disk" in said:
        advice = ": make room where its disk is full"
    elif isinstance(failure, NoConnection):
        advice = ": too many questions are being answered; ask again later"
    elif "not a database" in said:
        advice = ": PACELINE_DATABASE_URL names a file that is not an SQLite database"
    return DatabaseUnavailable(f"the database cannot be used ({said}){advice}")
