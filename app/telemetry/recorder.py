"""The recorder: every finished request and every acceptance window becomes one row, at the cost of one list entry."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sqlmodel import Session

from app.database import Database, until_settled
from app.errors import DatabaseUnavailable
from app.findings import Finding
from app.telemetry.obstacles import Obstacle, unrecorded
from app.telemetry.recorded import Recorded, Rows
from app.telemetry.replay import RETRY_SECONDS, Replay
from app.telemetry.spill import SpillFile
from app.telemetry.watch import Watch

_log = logging.getLogger(__name__)

# A database that stands still for minutes must not eat the memory of the service: past this, rows are lost and counted.
_WAITING_MOST = 200_000
# A kill may cost what ended in the last 100 ms. The writer waits up to 50 for company, so this rarely comes to pass.
LATE_SECONDS = 0.075
_COPIED_AT_ONCE = 500
# A database that is only slow finds so many in memory; more than that wait in the file alone.
_COPIED_MOST = 20_000


@dataclass(slots=True, eq=False)
class _Batch:
    """Events in a transaction; the first `copied` of them are in the spill file as well."""

    events: list[Recorded] = field(default_factory=list)
    since: float = 0.0
    copied: int = 0


class Recorder:
    """Takes what ends, requests and windows, and writes rows in bulk on the writer thread of the database.

    Events wait in a list of its own; at most one piece of work is queued to take them, so a burst of thousands is one
    insert. What is not committed LATE_SECONDS after it was told is copied to the `spill` file, for the case of a kill.
    What cannot be written stays there, and goes to the database as soon as that takes writes; without a file it is
    lost. What is lost is logged and counted in `lost_rows`. Nothing is ever raised to the publisher.
    """

    def __init__(
        self, database: Database, *, waiting_most: int = _WAITING_MOST, spill: SpillFile | None = None
    ) -> None:
        self._database = database
        self._waiting_most = waiting_most
        self._waiting: deque[Recorded] = deque()
        self._asked = False
        self._asked_at = 0.0
        self._rows = Rows()
        self.labels = self._rows.labels  # for who deletes those that no row has
        # Who takes events from the list and puts them elsewhere holds this. The event loop, which adds, never does.
        self._moving = threading.Lock()
        self._in_flight: list[_Batch] = []
        # So many of those that wait, the first ones, are in the file as well; and whether some are there alone.
        self._copied = 0
        self._has_orphans = False
        self._spill = spill
        self._watch = Watch("telemetry-spill", self._look) if spill else None
        self._replay = Replay(database, self._rows, spill, self._wake) if spill else None
        self._retry_at = 0.0
        self._obstacle = Obstacle(self._late_rows, spill.path if spill else None)
        # Two counters, because two threads count.
        self._refused_rows = 0
        self._failed_rows = 0

    @property
    def lost_rows(self) -> int:
        """Rows that could not be written since the start."""
        return self._refused_rows + self._failed_rows + (self._replay.lost_rows if self._replay else 0)

    @property
    def spilled_rows(self) -> int:
        """Rows that wait in the spill file."""
        return self._spill.rows if self._spill else 0

    @property
    def replayed_rows(self) -> int:
        """Rows that came from the spill file into the database since the start."""
        return self._replay.replayed_rows if self._replay else 0

    def start(self, tell: Callable[[Finding], None] = lambda _: None) -> None:
        """Open the spill file, with what an earlier run left, and look after it. `tell` hears, on any thread, of an
        obstacle when it comes up. Without a file there is nothing to do.
        """
        if self._spill is None or self._watch is None:
            return
        self._obstacle.tell = tell
        try:
            self._spill.open()
        except OSError as failure:
            _log.error("no spill file can be used: %s", failure)
        self._has_orphans = bool(self._spill.rows)
        if self._spill.rows:
            _log.info("%d rows of an earlier run wait in %s", self._spill.rows, self._spill.path)
        self._watch.start()

    def take(self, event: Recorded) -> None:
        """Take note; the row is on disk a moment later."""
        if len(self._waiting) >= self._waiting_most:
            self._refused_rows += 1
            return
        self._waiting.append(event)
        # The order matters: the writer clears `_asked` before it takes, and we look at it after we gave.
        if not self._asked:
            self._ask(urgent=False)

    on_request_finished = take

    async def flush(self) -> None:
        """Wait until everything told so far is committed or spilled, or counted as lost."""
        future = self._ask(urgent=True)
        if future is not None:
            await until_settled(future)

    async def close(self) -> None:
        """Commit or spill what waits, and let go of the spill file. Nothing may be told afterwards."""
        if self._obstacle.finding is None:
            await self.flush()
        if self._watch is not None:
            await asyncio.to_thread(self._end_spilling)

    def findings(self) -> Sequence[Finding]:
        """What keeps rows from being recorded, or has done so since the start."""
        found = [] if (present := self._obstacle.finding) is None else [present]
        if lost := self.lost_rows:
            found.append(unrecorded(lost))
        return found

    def _ask(self, *, urgent: bool) -> "Future[int] | None":
        """Queue one piece of work that takes all that waits; None where the database is closed."""
        if not self._asked:
            self._asked_at = time.monotonic()
        self._asked = True
        batch = _Batch()
        try:
            future = self._database.submit(
                lambda session: self._write(session, batch),
                urgent=urgent,
                settled=lambda done: self._settle(done, batch),
            )
        except DatabaseUnavailable as failure:
            self._asked = False
            if self._spill is None:  # else they wait, and go there in the end
                self._refused_rows += len(self._waiting)
                self._waiting.clear()
                _log.error("rows go unrecorded: %s", failure)
            return None
        self._wake()
        return future

    def _write(self, session: Session, batch: _Batch) -> int:
        """On the writer thread: how many rows were inserted."""
        with self._moving:
            batch.since, batch.copied = self._asked_at, self._copied
            self._asked, self._copied = False, 0
            # Popped one by one, since the event loop may append meanwhile.
            batch.events.extend(self._waiting.popleft() for _ in range(len(self._waiting)))
            self._in_flight.append(batch)
        return self._rows.insert(session, batch.events)

    def _settle(self, done: "Future[int]", batch: _Batch) -> None:
        """After COMMIT or rollback: count what is not there."""
        with self._moving:
            if batch in self._in_flight:
                self._in_flight.remove(batch)
        if done.cancelled():
            self._failed_rows += len(batch.events)
        elif (failure := done.exception()) is not None:
            self._fail(batch, failure)
        else:
            # What was copied can have come in from the file before.
            twice = len(batch.events) - batch.copied - done.result()
            if twice > 0:
                self._failed_rows += twice
                _log.error("%d rows were recorded before", twice)
            with self._moving:
                self._obstacle.go()
                self._tidy()

    def _fail(self, batch: _Batch, failure: BaseException) -> None:
        self._rows.forget()
        self._asked = False
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._spill is not None:
            # Whatever it is: if it is only one of them, the replay finds out which.
            with self._moving:
                rest = batch.events[batch.copied :]
                count = self._spill.append(rest)
                self._copy_all()
                self._leave_to_file()
                # No room in the file: they stay in memory, up to the bound.
                self._waiting.extendleft(reversed(rest[count:]))
            self._spill.sync()
            self._obstacle.come(str(failure))
            self._wake()
        elif batch.events:
            self._failed_rows += len(batch.events)
            _log.error("%d rows were not recorded: %s", len(batch.events), failure, exc_info=failure)

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    def _look(self) -> float | None:
        """On the thread of the watch: do what is due; when something may be due again."""
        now = time.monotonic()
        pauses = [self._copy_late(now)]
        if self._waiting and not self._asked and now >= self._retry_at:
            self._ask(urgent=False)
        if self._waiting:
            pauses.append(RETRY_SECONDS)
        if self._replay is not None:
            with self._moving:
                self._has_orphans = self._has_orphans and self.spilled_rows > 0
                if not (self._has_orphans or self._waiting or self._in_flight):
                    self._obstacle.go()
            if self._has_orphans:
                pauses.append(self._replay.go_on(now))
        return min((pause for pause in pauses if pause is not None), default=None)

    def _copy_late(self, now: float) -> float | None:
        with self._moving:
            since = [batch.since for batch in self._in_flight if batch.copied < len(batch.events)]
            if self._asked:
                since.append(self._asked_at)
            if not since:
                return None
            left_seconds = min(since) + LATE_SECONDS - now
            if left_seconds > 0:
                return left_seconds
            self._copy_all()
            if len(self._waiting) > _COPIED_MOST:
                self._leave_to_file()
            # What comes from now on is late so much later.
            self._asked_at = now
            is_slow = self._obstacle.be_late(now)
        if is_slow:
            self._obstacle.come("the database takes long")
        return LATE_SECONDS

    def _copy_all(self) -> None:
        """Holding `_moving`: have the file hold all that is not committed, as far as it has room."""
        if self._spill is None:
            return
        for batch in self._in_flight:
            batch.copied += self._spill.append(batch.events[batch.copied :])
        while self._copied < len(self._waiting):
            end = min(len(self._waiting), self._copied + _COPIED_AT_ONCE)
            part = [self._waiting[number] for number in range(self._copied, end)]
            count = self._spill.append(part)
            self._copied += count
            if count < len(part):
                break

    def _leave_to_file(self) -> None:
        """Holding `_moving`: forget what waits and is in the file."""
        for _ in range(self._copied):
            self._waiting.popleft()
        self._copied = 0
        self._has_orphans = self.spilled_rows > 0

    def _tidy(self) -> None:
        """Holding `_moving`: empty the file where all of it is committed."""
        is_needed = self._has_orphans or self._copied or any(batch.copied for batch in self._in_flight)
        if self._spill is not None and self._spill.rows and not is_needed:
            self._spill.clear()

    def _end_spilling(self) -> None:
        if self._watch is not None and self._spill is not None:
            self._watch.close()
            with self._moving:
                self._copy_all()
                self._failed_rows += len(self._waiting) - self._copied
                self._waiting.clear()
                self._copied = 0
            self._spill.sync()
            self._spill.close()

    def _late_rows(self) -> int:
        return self.spilled_rows + len(self._waiting) - self._copied
