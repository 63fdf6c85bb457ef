"""The database: one SQLite file in WAL mode, many short readers, and one thread that writes.

Whoever writes hands a piece of work to the writer thread. Pieces that wait at the same time share a transaction, each
in a savepoint of its own, and are told of success only after COMMIT. So there is never a second writer to wait for,
and a burst of small writes costs one flush to the disk.
"""

import asyncio
import math
import sqlite3
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
from sqlalchemy import Connection, NullPool
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlmodel import Session

from app.errors import DatabaseUnavailable
from app.sqlite_file import BUSY_MILLISECONDS, begin_with, engine_of, file_of, make_folder, unavailable

T = TypeVar("T")

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"

# The writer asks SQLite to wait in turns of so long: who waits inside SQLite cannot be told that the service ends.
_TURN_MILLISECONDS = 50
_CLOSING_SECONDS = 1.0
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
        self.path = file_of(url)
        make_folder(self.path)
        self._url = url
        self._linger_seconds = linger_seconds
        self._readers = engine_of(
            url, begin=begin_with("BEGIN"), pragmas=("foreign_keys=ON", "query_only=ON"), pool_size=5
        )
        self._writer = engine_of(
            url, begin=self._begin, pragmas=("foreign_keys=ON", f"busy_timeout={_TURN_MILLISECONDS}"), pool_size=1
        )
        self._arrived = threading.Condition()
        self._queue: deque[_Piece] = deque()
        self._urgent_waits = False
        self._in_flight = 0
        self._closing = False
        self._patient_until = math.inf
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
        """A short session over one consistent snapshot; SQLite refuses writes in it. Raises DatabaseUnavailable."""
        try:
            with Session(self._readers, expire_on_commit=False) as session:
                try:
                    yield session
                except Exception:
                    # What was read half way, and is kept by a traceback, would hold its snapshot for the next reader.
                    session.invalidate()
                    raise
        except (DatabaseError, NoConnection) as failure:
            # What is derived from these is about the statement: a fault of ours, and not of the file.
            if type(failure) not in (DatabaseError, OperationalError, NoConnection):
                raise
            raise unavailable(failure) from failure

    def submit(
        self,
        work: Callable[[Session], T],
        *,
        urgent: bool = True,
        settled: "Callable[[Future[T]], object] | None" = None,
    ) -> "Future[T]":
        """Have `work` run in the writer thread; its result comes after COMMIT.

        `work` neither commits nor rolls back: an exception undoes it, and it alone. Raises DatabaseUnavailable once
        the database is closed. A future cancelled before its turn is skipped. `settled` is called with the future on
        the writer thread; what is added to the future later may be called by who adds it.
        """
        piece = _Piece(work, urgent)
        if settled is not None:
            piece.future.add_done_callback(settled)
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

    def hurry(self, seconds: float = _CLOSING_SECONDS) -> None:
        """The service ends: wait for another program that holds the file so much longer in all, not for each piece.

        After that a piece that meets a locked file fails at once. To hurry again changes nothing.
        """
        self._patient_until = min(self._patient_until, time.monotonic() + seconds)

    def close(self) -> None:
        """Write what waits, in a hurry, then let go of the file. Closing twice is harmless."""
        self.hurry()
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

    def _begin(self, connection: Connection) -> None:
        """Begin to write: wait for others as long as SQLite would, or until patience ends."""
        deadline = time.monotonic() + BUSY_MILLISECONDS / 1000
        while True:
            try:
                connection.connection.dbapi_connection.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]
            except sqlite3.OperationalError as failure:
                is_busy = failure.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() >= min(deadline, self._patient_until):
                    raise
            else:
                return

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
            reason = unavailable(failure)
            outcomes = [(piece.future, None, reason) for piece in running]

        def settle() -> None:
            for future, result, failure in outcomes:
                if failure is None:
                    future.set_result(result)
                else:
                    future.set_exception(failure)

        return settle


async def until_settled(future: "Future[Any]") -> None:
    """Wait until a piece of work is done, and those who asked earlier were told. What it raises is theirs.

    To be cancelled leaves the work as it is.
    """
    told = asyncio.wrap_future(future)
    await asyncio.wait((told,))
    if not told.cancelled():
        told.exception()  # or asyncio complains that nobody has heard of it


@contextmanager
def migration_connection(url: str) -> Iterator[Connection]:
    """A connection in one exclusive transaction, for Alembic. Raises DatabaseUnavailable where there is none to have.

    Foreign keys are off: rebuilding a table means dropping the old one, which would take its dependent rows along.
    """
    make_folder(file_of(url))
    engine = engine_of(url, begin=begin_with("BEGIN IMMEDIATE"), pragmas=("foreign_keys=OFF",), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            yield connection
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
            if broken is not None:
                raise DatabaseUnavailable(f"migrating would leave table {broken[0]} with rows that point nowhere")
    except DatabaseError as failure:
        raise unavailable(failure) from failure
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
        return None, unavailable(failure) if isinstance(failure, OperationalError) else failure
    finally:
        session.expunge_all()  # the next piece must not meet this one's objects
    return result, None
