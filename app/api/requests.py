"""GET /requests, GET /requests/{id} and GET /stats: what was recorded of finished requests."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict

from app.api.resources import Page
from app.database import Database
from app.errors import RequestOver
from app.telemetry.queries import QueryInvalid, RequestFilters, get_request, list_requests
from app.telemetry.stats import StatsRow, stats

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class RequestResource(BaseModel):
    """One recorded request. Null means not reported, or not applicable; never zero. In flight it has no outcome."""

    id: str
    started_at: datetime
    profile_id: str | None
    revision: int | None
    instance_id: str | None
    engine_build: str | None
    argv_hash: str | None
    device_set: str | None
    requested_model: str | None
    route_reason: str | None
    endpoint: str
    stream: bool
    outcome: str | None
    status_code: int | None
    error: str | None
    queue_seconds: float | None
    time_to_first_token_seconds: float | None
    duration_seconds: float
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    prompt_seconds: float | None
    generation_seconds: float | None
    generation_tokens_per_second: float | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    mean_acceptance_length_estimate: float | None
    method: str | None
    category: str | None
    finish_reason: str | None
    client: str | None


class PercentilesResource(BaseModel):
    """Nearest-rank percentiles."""

    p50: float
    p90: float
    p99: float


class RateResource(PercentilesResource):
    """Percentiles of the requests' rates, and the rate of all their tokens together."""

    overall: float


class StatsResource(BaseModel):
    """One group; the names of `group_by` are members as well."""

    model_config = ConfigDict(extra="allow")

    requests: int
    outcomes: Mapping[str, int]
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    generation_tokens_per_second: RateResource | None
    time_to_first_token_seconds: PercentilesResource | None


class ActiveRequests(Protocol):
    """The requests in flight."""

    def list(self) -> Sequence[RequestResource]:
        """All of them, newest first."""

    def cancel(self, identifier: str) -> RequestResource | None:
        """End one, by its id or its client's; None where no such request is in flight."""


def router(database: Database, active: ActiveRequests) -> APIRouter:
    """What `database` holds of finished requests, and those in flight."""
    routes = APIRouter(tags=["requests"])

    @routes.get("/requests", dependencies=[_only("state", "limit", "cursor")])
    async def read_requests(
        chosen: Annotated[RequestFilters, Depends(_filters)],
        state: Annotated[Literal["active"] | None, Query(description="`active`: those in flight")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        cursor: str | None = None,
    ) -> Page[RequestResource]:
        """Recorded requests, newest first; or those in flight, of all profiles or of one."""
        if state == "active":
            if cursor is not None or replace(chosen, profile=None) != RequestFilters():
                raise QueryInvalid("state", "those in flight can be chosen by `profile` only")
            found = [each for each in active.list() if chosen.profile in (None, each.profile_id)]
            return Page(items=found[:limit])
        return await asyncio.to_thread(_page, database, chosen, limit, cursor)

    @routes.post(
        "/requests/{identifier}/cancel", status_code=202, responses={409: {"description": "it has ended already"}}
    )
    async def cancel_request(identifier: str) -> RequestResource:
        """End a request in flight: its client is told so, and the engine stops. 409 where it has ended already."""
        cancelled = active.cancel(identifier)
        if cancelled is None:
            await asyncio.to_thread(_recorded, database, identifier)
            raise RequestOver(f"request {identifier!r} has ended already")
        return cancelled

    @routes.get("/requests/{identifier}")
    def read_request(identifier: str) -> RequestResource:
        """One recorded request, by its id or by the X-Request-Id that its client sent."""
        with database.read() as session:
            return RequestResource(**asdict(get_request(session, identifier)))

    @routes.get("/stats", dependencies=[_only("group_by")])
    def read_stats(
        chosen: Annotated[RequestFilters, Depends(_filters)],
        group_by: Annotated[str, Query(description="names joined by commas; empty for one row of all")] = "profile",
    ) -> Page[StatsResource]:
        """Counts, sums, rates and percentiles of each group."""
        with database.read() as session:
            rows = stats(session, chosen, [name.strip() for name in group_by.split(",") if name.strip()])
        return Page(items=[_stats_resource(row) for row in rows])

    return routes


def _page(database: Database, chosen: RequestFilters, limit: int, cursor: str | None) -> Page[RequestResource]:
    with database.read() as session:
        page = list_requests(session, chosen, limit, cursor)
    return Page(items=[RequestResource(**asdict(record)) for record in page.items], next_cursor=page.next_cursor)


def _recorded(database: Database, identifier: str) -> None:
    """Raises RequestNotFound."""
    with database.read() as session:
        get_request(session, identifier)


def _filters(
    profile: str | None = None,
    outcome: str | None = None,
    method: str | None = None,
    category: str | None = None,
    since: Annotated[str | None, Query(description="RFC 3339; the first moment that counts")] = None,
    until: Annotated[str | None, Query(description="RFC 3339; the first moment after those that count")] = None,
) -> RequestFilters:
    return RequestFilters(profile, outcome, method, category, _time("since", since), _time("until", until))


def _only(*names: str) -> Any:
    """Refuse any other query parameter: a filter that is misspelt would answer with everything."""
    known = (*RequestFilters.__dataclass_fields__, *names)

    def check(request: Request) -> None:
        for name in request.query_params:
            if name not in known:
                raise QueryInvalid(name, f"unknown parameter; known are {', '.join(known)}")

    return Depends(check)


def _time(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    # A plus sign that was not encoded arrives as a space.
    text = re.sub(r" (\d\d:\d\d)$", r"+\1", text)
    try:
        if not _RFC_3339.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text.upper())
    except ValueError as failure:
        raise QueryInvalid(name, f"{text!r} is no RFC 3339 time; write it like 2026-01-31T12:00:00Z") from failure


def _stats_resource(row: StatsRow) -> StatsResource:
    fields: dict[str, Any] = asdict(row)
    overall = fields.pop("generation_tokens_per_second_overall")
    if row.generation_tokens_per_second is not None and overall is not None:
        fields["generation_tokens_per_second"]["overall"] = overall
    return StatsResource(**fields.pop("group"), **fields)
