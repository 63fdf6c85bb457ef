"""How well drafts were accepted as the engines themselves counted it: sums over acceptance windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlmodel import Session, col

from app.identifiers import IDS_PER_HOUR, id_time
from app.speculative.acceptance import acceptance_rate, acceptance_rate_by_position, mean_acceptance_length
from app.telemetry.queries import RequestFilters, contexts_of, first_id_of
from app.telemetry.tables import AcceptanceWindowRow, LaunchContextRow

GroupKey = tuple[str | int | None, ...]

_HOUR = "hour"
# SQLite has no more than 2000 columns in an answer, and an engine may count more positions.
_POSITIONS_AT_ONCE = 1000
# What a window can tell of itself; of requests' categories, endpoints and outcomes it knows nothing.
_GROUPINGS: Mapping[str, Any] = {
    "profile": col(LaunchContextRow.profile_id),
    "revision": col(LaunchContextRow.revision),
    "method": col(LaunchContextRow.method),
    "engine_build": col(LaunchContextRow.engine_build),
    "argv_hash": col(LaunchContextRow.argv_hash),
    "device_set": col(LaunchContextRow.device_set),
    _HOUR: col(AcceptanceWindowRow.id) // IDS_PER_HOUR,
}


@dataclass(frozen=True, slots=True)
class EngineAcceptance:
    """What engines counted of their drafts over all windows of a group: all traffic, whatever its answers reported.

    The ratios are of these sums. `acceptance_rate_by_position` is None where a window of the group does not tell it.
    `rounded_to` is the least step in which any of the counts was told: 1 where they are exact.
    """

    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    acceptance_rate_by_position: Sequence[float] | None
    rounded_to: int


def engine_acceptance(
    session: Session, filters: RequestFilters, group_by: Sequence[str]
) -> Mapping[GroupKey, EngineAcceptance]:
    """The sums of each group that has windows, by its values in the order of `group_by`.

    Empty where windows cannot tell: grouped by, or restricted to, something that only requests have. A window counts in
    the hour in which it ended.
    """
    names = list(dict.fromkeys(group_by))
    if filters.outcome is not None or filters.category is not None or not set(names) <= set(_GROUPINGS):
        return {}
    columns = [_GROUPINGS[name] for name in names]
    totals = _totals(session, filters, columns)
    longest = max((total[2] or 0 for total in totals.values()), default=0)
    positions = _positions(session, filters, columns, longest) if longest else {}
    return {
        tuple(_shown(name, value) for name, value in zip(names, key, strict=True)): _acceptance(
            total, positions.get(key, ())
        )
        for key, total in totals.items()
    }


def _totals(session: Session, filters: RequestFilters, columns: Sequence[Any]) -> dict[tuple[Any, ...], Any]:
    row = AcceptanceWindowRow
    sums = (
        func.count(),
        func.count(col(row.accepted_by_position)),
        func.max(func.json_array_length(col(row.accepted_by_position))),
        func.sum(col(row.drafts)),
        func.sum(col(row.draft_tokens)),
        func.sum(col(row.accepted_tokens)),
        func.max(col(row.rounded_to)),
    )
    statement = _windows(session, filters, select(*sums, *columns)).group_by(*columns)
    found = session.execute(statement)
    # Without anything to group by, SQL gives one row also where there is nothing to sum up.
    return {tuple(values[len(sums) :]): values[: len(sums)] for values in found if values[0]}


def _positions(
    session: Session, filters: RequestFilters, columns: Sequence[Any], count: int
) -> Mapping[tuple[Any, ...], Sequence[int | None]]:
    """Sums of the first `count` positions. One by one: `json_each` takes five times as long."""
    lists = col(AcceptanceWindowRow.accepted_by_position)
    together: dict[tuple[Any, ...], list[int | None]] = {}
    for start in range(0, count, _POSITIONS_AT_ONCE):
        positions = range(start, min(start + _POSITIONS_AT_ONCE, count))
        sums = [func.sum(func.json_extract(lists, f"$[{position}]")) for position in positions]
        found = session.execute(_windows(session, filters, select(*sums, *columns)).group_by(*columns))
        for values in found:
            together.setdefault(tuple(values[len(sums) :]), []).extend(values[: len(sums)])
    return together


def _windows(session: Session, filters: RequestFilters, statement: Any) -> Any:
    served_by = col(LaunchContextRow.id) == col(AcceptanceWindowRow.context_id)
    statement = statement.select_from(AcceptanceWindowRow).join(LaunchContextRow, served_by)
    contexts = contexts_of(session, filters)
    if contexts is not None:
        statement = statement.where(col(AcceptanceWindowRow.context_id).in_(contexts))
    return statement.where(*_of_the_time(filters))


def _acceptance(total: Sequence[Any], accepted_by_position: Sequence[int | None]) -> EngineAcceptance:
    windows, told, longest, drafts, draft_tokens, accepted_tokens, rounded_to = total
    return EngineAcceptance(
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted_tokens,
        acceptance_rate=acceptance_rate(draft_tokens, accepted_tokens),
        mean_acceptance_length=mean_acceptance_length(drafts, accepted_tokens),
        acceptance_rate_by_position=acceptance_rate_by_position(
            drafts, [accepted or 0 for accepted in accepted_by_position[:longest]] if told == windows else None
        ),
        rounded_to=rounded_to,
    )


def _shown(name: str, value: Any) -> str | int | None:
    return f"{id_time(value * IDS_PER_HOUR):%Y-%m-%dT%H:%M:%SZ}" if name == _HOUR else value


def _of_the_time(filters: RequestFilters) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if filters.since is not None:
        chosen.append(col(AcceptanceWindowRow.id) >= first_id_of(filters.since))
    if filters.until is not None:
        chosen.append(col(AcceptanceWindowRow.id) < first_id_of(filters.until))
    return chosen
