"""Finished requests as rows of the request table."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from sqlmodel import Session

from app.identifiers import IDS_PER_HOUR
from app.proxy.observer import RequestFinished
from app.telemetry.client_ids import packed
from app.telemetry.codes import CATEGORIES, ENDPOINTS, OUTCOMES
from app.telemetry.interning import Contexts, Labels
from app.telemetry.tables import RequestRow

_TEXT_MOST = 500


class RequestRows:
    """Inserts rows, on the writer thread of the database. Texts and contexts that repeat are remembered."""

    def __init__(self) -> None:
        self.labels = Labels()
        self._contexts = Contexts()

    def insert(self, session: Session, events: Sequence[RequestFinished]) -> int:
        """Insert a row for each event that has none; how many had none.

        Whatever is raised, here or by the commit, calls for `forget`.
        """
        if not events:
            return 0
        try:
            _mark_late(session, events)
            return _insert(session, self._values(session, events))
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """The numbers that were given last may not be there."""
        self.labels.forget()
        self._contexts.forget()

    def _values(self, session: Session, events: Sequence[RequestFinished]) -> list[tuple[Any, ...]]:
        texts = {text for event in events for text in _texts(event)}
        stored = {text: storable(text) for text in texts if text is not None}
        numbers = self.labels.numbers(session, stored.values())
        labels: dict[str | None, int | None] = {text: numbers[kept] for text, kept in stored.items()}
        labels[None] = None
        return [_row(event, self._context_id(session, event), labels) for event in events]

    def _context_id(self, session: Session, event: RequestFinished) -> int | None:
        served_by = event.context or event.profile_id
        return None if served_by is None else self._contexts.number(session, served_by)


def _mark_late(session: Session, events: Sequence[RequestFinished]) -> None:
    """Requests of hours that the roll-ups have closed, since they took long, or waited in the spill file."""
    closed_hour = session.connection().exec_driver_sql(_CLOSED_HOUR).scalar() or 0
    first_id = closed_hour * IDS_PER_HOUR
    late = [event.request_id for event in events if event.request_id < first_id]
    if late:
        session.connection().exec_driver_sql(_MARK_LATE, [(identifier, identifier) for identifier in late])


def _texts(event: RequestFinished) -> tuple[str | None, ...]:
    return event.requested_model, event.route_reason, _error(event), event.report.finish_reason, event.client


def _error(event: RequestFinished) -> str | None:
    return event.report.error if event.error is None else event.error


_COLUMNS = (
    "id context_id instance_id requested_model_label route_reason_label endpoint_code stream outcome_code status_code "
    "error_label queue_us time_to_first_token_us duration_us prompt_tokens cached_tokens generated_tokens prompt_us "
    "generation_us draft_tokens accepted_tokens category_code finish_reason_label client_label client_request_id"
).split()
_CLOSED_HOUR = "SELECT closed_hour FROM rollup_state"
_MARK_LATE = (
    "INSERT INTO request_late SELECT ? WHERE NOT EXISTS (SELECT 1 FROM request WHERE id = ?) ON CONFLICT DO NOTHING"
)
_ROW = f"({', '.join('?' * len(_COLUMNS))})"
# Every step of a statement is a turn that other threads take, five milliseconds of it where one computes: many rows
# in a statement, and few statements to be prepared.
_PORTIONS = (100, 10, 1)
# A request that was told twice must not cost the rest of the batch.
_INSERTS = {
    rows: f"INSERT INTO {RequestRow.__tablename__} ({', '.join(_COLUMNS)}) "  # noqa: S608 - nothing comes from outside
    f"VALUES {', '.join([_ROW] * rows)} ON CONFLICT DO NOTHING"
    for rows in _PORTIONS
}


def _insert(session: Session, rows: Sequence[tuple[Any, ...]]) -> int:
    """How many were not there. Plain SQL: to compile and to check every row again would cost more than SQLite does."""
    run = session.connection().exec_driver_sql
    inserted = start = 0
    for portion in _PORTIONS:
        while len(rows) - start >= portion:
            values = tuple(chain.from_iterable(rows[start : start + portion]))
            inserted += run(_INSERTS[portion], values).rowcount
            start += portion
    return inserted


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
        None if event.client_request_id is None else packed(storable(event.client_request_id)),
    )


def storable(text: str) -> str:
    """JSON can smuggle in half a surrogate pair, which SQLite refuses to take."""
    return text[:_TEXT_MOST].encode("utf-8", "replace").decode("utf-8")
