"""The recorder: every finished request becomes one row, at the cost of one list entry on the event loop."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from sqlmodel import Session

from app.database import Database
from app.errors import DatabaseUnavailable
from app.proxy.observer import RequestFinished
from app.telemetry.codes import CATEGORIES, ENDPOINTS, OUTCOMES
from app.telemetry.interning import Contexts, Labels
from app.telemetry.tables import RequestRow

_log = logging.getLogger(__name__)

_TEXT_MOST = 500
CLIENT_REQUEST_ID_MOST = 200
# A database that stands still for minutes must not eat the memory of the service: past this, rows are lost and counted.
_WAITING_MOST = 200_000


class Recorder:
    """Subscribes to RequestFinished and writes rows in bulk, on the writer thread of the database.

    Events wait in a list of its own; at most one piece of work is queued to take them, so a burst of thousands is one
    insert. What cannot be written is logged and counted in `lost_rows`; nothing is ever raised to the publisher.
    """

    def __init__(self, database: Database, *, waiting_most: int = _WAITING_MOST) -> None:
        self._database = database
        self._waiting_most = waiting_most
        self._waiting: deque[RequestFinished] = deque()
        self._asked = False
        self._labels = Labels()
        self._contexts = Contexts()
        # Two counters, because two threads count.
        self._refused_rows = 0
        self._failed_rows = 0

    @property
    def lost_rows(self) -> int:
        """Requests whose row could not be written since the start."""
        return self._refused_rows + self._failed_rows

    def on_request_finished(self, event: RequestFinished) -> None:
        """Take note; the row is on disk a moment later."""
        if len(self._waiting) >= self._waiting_most:
            self._refused_rows += 1
            return
        self._waiting.append(event)
        # The order matters: the writer clears `_asked` before it takes, and we look at it after we gave.
        if not self._asked:
            self._ask(urgent=False)

    async def flush(self) -> None:
        """Wait until everything told so far is committed, or counted as lost."""
        future = self._ask(urgent=True)
        if future is not None:
            await asyncio.wait((asyncio.wrap_future(future),))

    def _ask(self, *, urgent: bool) -> "Future[int] | None":
        """Queue one piece of work that takes all that waits; None where the database is closed."""
        self._asked = True
        taken: list[RequestFinished] = []
        try:
            future = self._database.submit(lambda session: self._write(session, taken), urgent=urgent)
        except DatabaseUnavailable as failure:
            self._asked = False
            self._refused_rows += len(self._waiting)
            self._waiting.clear()
            _log.error("requests go unrecorded: %s", failure)
            return None
        future.add_done_callback(lambda done: self._settle(done, taken))
        return future

    def _write(self, session: Session, taken: list[RequestFinished]) -> int:
        """On the writer thread: how many rows were inserted."""
        self._asked = False
        # Popped one by one, since the event loop may append meanwhile.
        taken.extend(self._waiting.popleft() for _ in range(len(self._waiting)))
        if not taken:
            return 0
        try:
            # Plain SQL and tuples: to compile and to check every row again would cost more than SQLite's own work.
            return session.connection().exec_driver_sql(_INSERT, self._rows(session, taken)).rowcount
        except BaseException:
            self._forget()
            raise

    def _settle(self, done: "Future[int]", taken: list[RequestFinished]) -> None:
        """After COMMIT or rollback: count what is not there."""
        if done.cancelled():
            self._failed_rows += len(taken)
        elif (failure := done.exception()) is not None:
            self._forget()
            self._failed_rows += len(taken)
            if taken:
                _log.error("%d requests were not recorded: %s", len(taken), failure, exc_info=failure)
        elif done.result() < len(taken):
            self._failed_rows += len(taken) - done.result()
            _log.error("%d requests were recorded before", len(taken) - done.result())

    def _forget(self) -> None:
        self._labels.forget()
        self._contexts.forget()

    def _rows(self, session: Session, events: Sequence[RequestFinished]) -> list[tuple[Any, ...]]:
        storable = {text: _storable(text) for event in events for text in _texts(event) if text is not None}
        numbers = self._labels.numbers(session, storable.values())
        labels: dict[str | None, int | None] = {text: numbers[stored] for text, stored in storable.items()}
        labels[None] = None
        return [_row(event, self._context_id(session, event), labels) for event in events]

    def _context_id(self, session: Session, event: RequestFinished) -> int | None:
        served_by = event.context or event.profile_id
        return None if served_by is None else self._contexts.number(session, served_by)


def _texts(event: RequestFinished) -> tuple[str | None, ...]:
    return event.requested_model, event.route_reason, _error(event), event.report.finish_reason, event.client


def _error(event: RequestFinished) -> str | None:
    return event.report.error if event.error is None else event.error


_COLUMNS = (
    "id context_id instance_id requested_model_label route_reason_label endpoint_code stream outcome_code status_code "
    "error_label queue_us time_to_first_token_us duration_us prompt_tokens cached_tokens generated_tokens prompt_us "
    "generation_us draft_tokens accepted_tokens category_code finish_reason_label client_label client_request_id"
).split()
# A request that was told twice must not cost the rest of the batch.
_INSERT = (
    f"INSERT INTO {RequestRow.__tablename__} ({', '.join(_COLUMNS)}) "  # noqa: S608 - nothing here comes from outside
    f"VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT DO NOTHING"
)


def _row(event: RequestFinished, context_id: int | None, labels: Mapping[str | None, int | None]) -> tuple[Any, ...]:
    """The values of `_COLUMNS`, in that order."""
    report = event.report
    return (
        event.request_id,
        context_id,
        event.instance_id,
        labels[event.requested_model],
        labels[event.route_reason],
        ENDPOINTS.encode(event.endpoint),
        event.stream,
        OUTCOMES.encode(event.outcome),
        event.status_code,
        labels[_error(event)],
        event.queue_us,
        event.time_to_first_token_us,
        event.duration_us,
        report.prompt_tokens,
        report.cached_tokens,
        report.generated_tokens,
        report.prompt_us,
        report.generation_us,
        report.draft_tokens,
        report.accepted_tokens,
        None if event.category is None else CATEGORIES.encode(event.category),
        labels[report.finish_reason],
        labels[event.client],
        None if event.client_request_id is None else _storable(event.client_request_id, CLIENT_REQUEST_ID_MOST),
    )


def _storable(text: str, most: int = _TEXT_MOST) -> str:
    """JSON can smuggle in half a surrogate pair, which SQLite refuses to take."""
    return text[:most].encode("utf-8", "replace").decode("utf-8")
