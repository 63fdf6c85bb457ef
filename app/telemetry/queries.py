"""Reading recorded requests: newest first in pages, or one of them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, literal, select
from sqlmodel import Session, col

from app.errors import PacelineError, RequestNotFound
from app.identifiers import first_id_at, parse_id
from app.telemetry.client_ids import client_key, packed
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.newest_ids import newest_ids
from app.telemetry.records import RequestRecord, RequestTexts, record_of
from app.telemetry.tables import LabelRow, LaunchContextRow, RequestRow

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_ID = (1 << 63) - 1
# The engine's clock of the generation starts with the first token, so a rate needs a second one.
HAS_RATE = (col(RequestRow.generated_tokens) >= 2) & (col(RequestRow.generation_us) > 0)

_SHOWN = [getattr(RequestRow, name) for name in RequestRow.model_fields if not name.startswith("client_request_")]


class QueryInvalid(PacelineError):
    """A question that cannot be answered as asked; `field` names the parameter."""

    code = "query-invalid"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}", problems=[{"field": field, "message": message}])
        self.field = field


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the items; `next_cursor` asks for the following ones, None where there are none."""

    items: Sequence[T]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """Which requests; None does not restrict. `since` is the first moment that counts, `until` the first after it."""

    profile: str | None = None
    outcome: str | None = None
    method: str | None = None
    category: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_requests(
    session: Session, filters: RequestFilters, limit: int, cursor: str | None = None
) -> Page[RequestRecord]:
    """Recorded requests, newest first. Raises QueryInvalid for an unknown outcome or a cursor that is none."""
    ids = _newest_ids(session, filters, limit + 1, cursor)
    records = _records(session, ids[:limit])
    return Page(records, records[-1].id if len(ids) > limit else None)


def get_request(session: Session, identifier: str) -> RequestRecord:
    """One request by its id, or the newest to which its client gave that id. Raises RequestNotFound."""
    own_id = parse_id(identifier)
    found = own_id is not None and session.get(RequestRow, own_id) is not None
    if not found:
        own_id = session.execute(of_client(identifier)).scalar()
    if own_id is None:
        raise RequestNotFound(
            f"no request {identifier!r} is recorded: GET /requests lists those that are; one in flight is recorded "
            "when it ends"
        )
    return _records(session, [own_id])[0]


def of_client(identifier: str) -> Select[int]:
    """The newest request to which its client gave that id."""
    key = literal(client_key(packed(identifier)))
    return (
        select(col(RequestRow.id))
        .where(col(RequestRow.client_request_key) == key, col(RequestRow.client_request_id) == identifier)
        .order_by(col(RequestRow.id).desc())
        .limit(1)
    )


def be_one_of(field: str, word: str, known: Collection[str]) -> None:
    """Raises QueryInvalid where the value of this parameter is none of the words that there are."""
    if word not in known:
        raise QueryInvalid(field, f"{word!r} is none of {', '.join(known)}")


def conditions(filters: RequestFilters) -> list[ColumnElement[bool]]:
    """Those filters that the request row itself can answer. Raises QueryInvalid for an unknown outcome or category."""
    return [*_of_the_kind(filters), *_of_the_time(filters)]


def _of_the_kind(filters: RequestFilters) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if filters.outcome is not None:
        be_one_of("outcome", filters.outcome, OUTCOMES.numbers)
        chosen.append(col(RequestRow.outcome_code) == OUTCOMES.encode(filters.outcome))
    if filters.category is not None:
        be_one_of("category", filters.category, CATEGORIES.numbers)
        chosen.append(col(RequestRow.category_code) == CATEGORIES.encode(filters.category))
    return chosen


def _of_the_time(filters: RequestFilters) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if filters.since is not None:
        chosen.append(col(RequestRow.id) >= first_id_of(filters.since))
    if filters.until is not None:
        chosen.append(col(RequestRow.id) < first_id_of(filters.until))
    return chosen


def contexts_of(session: Session, filters: RequestFilters) -> Sequence[int] | None:
    """The contexts that the filters leave; None where they restrict none."""
    contexts = _contexts(filters)
    return None if contexts is None else session.execute(contexts).scalars().all()


def _contexts(filters: RequestFilters) -> Select[Any] | None:
    """The question for them."""
    if filters.profile is None and filters.method is None:
        return None
    statement = select(col(LaunchContextRow.id))
    if filters.profile is not None:
        statement = statement.where(col(LaunchContextRow.profile_id) == filters.profile)
    if filters.method is not None:
        statement = statement.where(col(LaunchContextRow.method) == filters.method)
    return statement


def _newest_ids(session: Session, filters: RequestFilters, most: int, cursor: str | None) -> list[int]:
    chosen, span = _of_the_kind(filters), _of_the_time(filters)
    if cursor is not None:
        before = parse_id(cursor)
        if before is None:
            raise QueryInvalid("cursor", "not a cursor of this list: take `next_cursor` of the page before")
        span.append(col(RequestRow.id) < before)
    contexts = _contexts(filters)
    if contexts is not None:
        return newest_ids(session, contexts, span, chosen, most)
    newest = select(col(RequestRow.id)).where(*chosen, *span).order_by(col(RequestRow.id).desc()).limit(most)
    return list(session.execute(newest).scalars())


def _records(session: Session, ids: Sequence[int]) -> list[RequestRecord]:
    # Plain rows: an export makes millions, while streams wait for what Python does here.
    rows: Sequence[Any] = session.execute(
        select(*_SHOWN).where(col(RequestRow.id).in_(ids)).order_by(col(RequestRow.id).desc())
    ).all()
    contexts = _by_id(session, LaunchContextRow, (row.context_id for row in rows))
    labels = {number: label.text for number, label in _by_id(session, LabelRow, _label_ids(rows)).items()}
    return [record_of(row, contexts.get(row.context_id), _texts(row, labels)) for row in rows]


def _by_id(session: Session, table: Any, ids: Iterable[int | None]) -> dict[int | None, Any]:
    wanted = {number for number in ids if number is not None}
    found = session.execute(select(*table.__table__.columns).where(table.id.in_(wanted)))
    return {row.id: row for row in found}


def _label_ids(rows: Iterable[RequestRow]) -> Iterable[int | None]:
    for row in rows:
        yield from (
            row.requested_model_label,
            row.route_reason_label,
            row.error_label,
            row.finish_reason_label,
            row.client_label,
        )


def _texts(row: RequestRow, labels: dict[int | None, str]) -> RequestTexts:
    return RequestTexts(
        requested_model=labels.get(row.requested_model_label),
        route_reason=labels.get(row.route_reason_label),
        error=labels.get(row.error_label),
        finish_reason=labels.get(row.finish_reason_label),
        client=labels.get(row.client_label),
    )


def first_id_of(moment: datetime) -> int:
    """The smallest id given at this moment or later; ids know milliseconds."""
    milliseconds = -((_EPOCH - moment) // timedelta(milliseconds=1))
    return min(max(first_id_at(milliseconds), 0), _LARGEST_ID)
