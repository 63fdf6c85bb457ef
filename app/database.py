"""The database: one SQLite file in WAL mode, many short readers, and one thread that writes.

Whoever writes hands a piece of work to the writer thread. Pieces that wait at the same time share a transaction, each
in a savepoint of its own, and are told of success only after COMMIT. So there is never a second writer to wait for,
and a burst of small writes costs one flush to the disk.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlmodel import Session

from app.errors import DatabaseUnavailable, SettingsInvalid

T = TypeVar("T")

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"

_BUSY_MILLISECONDS = 5000
_BATCH_MOST = 1000


@dataclass(frozen=True, slots=True)
class _Piece:
    """One piece of work and who waits for it."""

    work: Callable[[Session], Any]
    urgent: bool
    future: Future[Any] = field(default_factory=Future)


class Database:
    """One SQLite file. `migrate`, then `start`, then use; `close` at the end.

    `url` names a file (`sqlite:///...`), here `path`, whose folder is created; SettingsInvalid for anything else. Work
    that is not urgent waits up to `linger_seconds` for company.
    """

    def __init__(self, url: str, *, linger_seconds: float = 0.05) -> None:
        self.path = _file_of(url)
        _make_folder(self.path)
        self._url = url
        self._linger_seconds = linger_seconds
        self._readers = _engine(url, begin="BEGIN", pragmas=("foreign_keys=ON", "query_only=ON"), pool_size=5)
        self._writer = _engine(url, begin="BEGIN IMMEDIATE", pragmas=("foreign_keys=ON",), pool_size=1)
        self._arrived = threading.Condition()
        self._queue: deque[_Piece] = deque()
        self._urgent_waits = False
        self._in_flight = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def migrate(self) -> None:
        """Bring the tables up to date. Raises DatabaseUnavailable, with the way out in its message."""
        with migration_connection(self._url) as connection:
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
            unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
            if unknown:
                raise DatabaseUnavailable(
                    f"{self.path} is of a newer version (revision {', '.join(sorted(unknown))}) than this Paceline "
                    "knows: upgrade Paceline, or name another file in PACELINE_DATABASE_URL"
                )
            command.upgrade(config, "head")

    def start(self) -> None:
        """Start the writer thread. A daemon, so that a start-up that fails half way can still end."""
        self._thread = threading.Thread(target=self._write_until_closed, name="database-writer", daemon=True)
        self._thread.start()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A short session over one consistent snapshot; SQLite refuses writes in it."""
        try:
            with Session(self._readers, expire_on_commit=False) as session:
                yield session
        except OperationalError as failure:
            raise _unavailable(failure) from failure

    def submit(self, work: Callable[[Session], T], *, urgent: bool = True) -> "Future[T]":
        """Have `work` run in the writer thread; its result comes after COMMIT.

        `work` neither commits nor rolls back: an exception undoes it, and it alone. Raises DatabaseUnavailable once
        the database is closed. A future cancelled before its turn is skipped.
        """
        piece = _Piece(work, urgent)
        with self._arrived:
            if self._closing:
                raise DatabaseUnavailable("the database is closed: the service is stopping")
            self._queue.append(piece)
            self._urgent_waits = self._urgent_waits or urgent
            # Waking the writer for each row of a burst would cost more than the rows do.
            if urgent or len(self._queue) in (1, _BATCH_MOST):
                self._arrived.notify()
        return piece.future

    async def write(self, work: Callable[[Session], T]) -> T:
        """`submit`, awaited."""
        return await asyncio.wrap_future(self.submit(work))

    @property
    def backlog(self) -> int:
        """Pieces of work that are not committed yet."""
        with self._arrived:
            return len(self._queue) + self._in_flight

    def close(self) -> None:
        """Write what waits, then let go of the file. Closing twice is harmless."""
        with self._arrived:
            self._closing = True
            self._arrived.notify()
        if self._thread is not None:
            self._thread.join()
        for piece in self._queue:  # only where the writer was never started
            piece.future.cancel()
        self._queue.clear()
        self._readers.dispose()
        self._writer.dispose()

    def _write_until_closed(self) -> None:
        while batch := self._next_batch():
            settle = self._commit(batch)
            with self._arrived:
                self._in_flight = 0
            settle()

    def _next_batch(self) -> Sequence[_Piece]:
        """The pieces of the next transaction; none when closed and drained."""
        with self._arrived:
            while not self._queue and not self._closing:
                self._arrived.wait()
            deadline = time.monotonic() + self._linger_seconds
            while not (self._urgent_waits or self._closing or len(self._queue) >= _BATCH_MOST):
                left_seconds = deadline - time.monotonic()
                if left_seconds <= 0:
                    break
                self._arrived.wait(left_seconds)
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_MOST))]
            self._urgent_waits = any(piece.urgent for piece in self._queue)
            self._in_flight = len(batch)
            return batch

    def _commit(self, batch: Sequence[_Piece]) -> Callable[[], None]:
        """Run the batch in one transaction; the returned function tells those who wait."""
        running = [piece for piece in batch if piece.future.set_running_or_notify_cancel()]
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with Session(self._writer, expire_on_commit=False) as session:
                session.connection()  # once: each piece would wait anew for a lock that is not to be had
                outcomes = [(piece.future, *_attempt(session, piece.work)) for piece in running]
                session.commit()
        except BaseException as failure:  # whoever waits must hear of it, and the thread has to live on
            reason = _unavailable(failure)
            outcomes = [(piece.future, None, reason) for piece in running]

        def settle() -> None:
            for future, result, failure in outcomes:
                if failure is None:
                    future.set_result(result)
                else:
                    future.set_exception(failure)

        return settle


@contextmanager
def migration_connection(url: str) -> Iterator[Connection]:
    """A connection in one exclusive transaction, for Alembic. Raises DatabaseUnavailable where there is none to have.

    Foreign keys are off: rebuilding a table means dropping the old one, which would take its dependent rows along.
    """
    _make_folder(_file_of(url))
    engine = _engine(url, begin="BEGIN IMMEDIATE", pragmas=("foreign_keys=OFF",), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            yield connection
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
            if broken is not None:
                raise DatabaseUnavailable(f"migrating would leave table {broken[0]} with rows that point nowhere")
    except DatabaseError as failure:
        raise _unavailable(failure) from failure
    finally:
        engine.dispose()


def _attempt(session: Session, work: Callable[[Session], Any]) -> tuple[Any, BaseException | None]:
    """One piece in a savepoint: its result, or what it raised."""
    try:
        with session.begin_nested():
            result = work(session)
    except BaseException as failure:
        # On some errors (a full disk, say) SQLite rolls the whole transaction back, earlier pieces included.
        if not session.connection().connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
            raise
        return None, _unavailable(failure) if isinstance(failure, OperationalError) else failure
    finally:
        session.expunge_all()  # the next piece must not meet this one's objects
    return result, None


def _engine(url: str, *, begin: str, pragmas: Sequence[str], **options: Any) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_MILLISECONDS / 1000}, **options)

    # Python's sqlite3 opens transactions late and never for DDL, which breaks savepoints: BEGIN is ours.
    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        if connection.execute("PRAGMA page_count").fetchone() == (0,):
            # Only a file that is new takes it, and only before anything else.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL").close()
        always = ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={_BUSY_MILLISECONDS}")
        for pragma in (*always, *pragmas):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _file_of(url: str) -> Path:
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


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise DatabaseUnavailable(f"the folder of the database cannot be made: {failure}") from failure


def _unavailable(failure: BaseException) -> DatabaseUnavailable:
    if isinstance(failure, DatabaseUnavailable):
        return failure
    said = str(getattr(failure, "orig", None) or failure)
    advice = ""
    if "locked" in said:
        advice = ": another process holds it; stop that one, or name another file in PACELINE_DATABASE_URL"
    elif "disk" in said:
        advice = ": make room where its disk is full"
    elif "not a database" in said:
        advice = ": PACELINE_DATABASE_URL names a file that is not an SQLite database"
    return DatabaseUnavailable(f"the database cannot be used ({said}){advice}")
