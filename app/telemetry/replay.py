"""What was spilled on its way into the database, in the order in which it was told."""

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from app.database import Database
from app.errors import DatabaseUnavailable
from app.line_file import FrontPart
from app.telemetry.recorded import Recorded, Rows
from app.telemetry.spill import SpillFile

_log = logging.getLogger(__name__)

_PART_ROWS = 500
RETRY_SECONDS = 1.0


class Replay:
    """Takes the spill file off from its front, part by part. A row that is there already is left as it is.

    One thread asks, with `go_on`; `on_settled` is called on the writer thread of the database after each attempt.
    """

    def __init__(self, database: Database, rows: Rows, spill: SpillFile, on_settled: Callable[[], None]) -> None:
        self._database = database
        self._rows = rows
        self._spill = spill
        self._on_settled = on_settled
        self._is_under_way = False
        self._retry_at = 0.0
        # After a part that the database refuses for what is in it, so many go by themselves.
        self._singly = 0
        self._unsaid_rows = 0
        self.replayed_rows = 0
        self.lost_rows = 0

    def go_on(self, now: float) -> float | None:
        """Begin with the next part if it is time; seconds until the next try, None where there is none to come.

        Raises OSError where the file cannot be read.
        """
        if self._is_under_way or not self._spill.rows:
            return None
        if now < self._retry_at:
            return self._retry_at - now
        part = self._spill.front(1 if self._singly else _PART_ROWS)
        self._is_under_way = True
        # Closed: the next start goes on.
        with contextlib.suppress(DatabaseUnavailable):
            self._database.submit(
                lambda session: self._rows.insert(session, part.values), settled=lambda done: self._settle(done, part)
            )
        return None

    def _settle(self, done: "Future[int]", part: FrontPart[Recorded]) -> None:
        failure = None if done.cancelled() else done.exception()
        if failure is not None or done.cancelled():
            self._rows.forget()
        if isinstance(failure, DatabaseUnavailable) or done.cancelled():
            self._retry_at = time.monotonic() + RETRY_SECONDS
        elif failure is not None and len(part.values) > 1:
            self._singly = len(part.values)
        else:
            self._singly = max(self._singly - 1, 0)
            self._finish(part, failure, 0 if failure is not None else done.result())
        self._is_under_way = False
        self._on_settled()

    def _finish(self, part: FrontPart[Recorded], failure: BaseException | None, inserted_rows: int) -> None:
        self.replayed_rows += inserted_rows
        self.lost_rows += part.unreadable
        if failure is not None:
            self.lost_rows += len(part.values)
            _log.error("a spilled row cannot be recorded: %s", failure, exc_info=failure)
        self._spill.done(part)
        self._unsaid_rows += inserted_rows
        if self._unsaid_rows and not self._spill.rows:
            _log.info("the database has taken %d rows from the spill file", self._unsaid_rows)
            self._unsaid_rows = 0
