"""GET /requests and GET /requests/{id}: what was recorded of finished requests, and those in flight."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from app.api import request_export, stats
from app.api.request_filters import filters, only
from app.api.resources import Page
from app.database import Database
from app.errors import RequestOver
from app.telemetry.queries import QueryInvalid, RequestFilters, get_request, list_requests


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


class ActiveRequests(Protocol):
    """The requests in flight."""

    def list(self) -> Sequence[RequestResource]:
        """All of them, newest first."""

    def cancel(self, identifier: str) -> RequestResource | None:
        """End one, by its id or its client's; None where no such request is in flight."""


def router(database: Database, active: ActiveRequests) -> APIRouter:
    """What `database` holds of finished requests, and those in flight."""
    routes = APIRouter(tags=["requests"])

    @routes.get("/requests", dependencies=[only("state", "limit", "cursor")])
    async def read_requests(
        chosen: Annotated[RequestFilters, Depends(filters)],
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

    # Before the ids, since it would be taken for one.
    routes.include_router(request_export.router(database))

    @routes.get("/requests/{identifier}")
    def read_request(identifier: str) -> RequestResource:
        """One recorded request, by its id or by the X-Request-Id that its client sent."""
        with database.read() as session:
            return RequestResource(**asdict(get_request(session, identifier)))

    routes.include_router(stats.router(database))
    return routes


def _page(database: Database, chosen: RequestFilters, limit: int, cursor: str | None) -> Page[RequestResource]:
    with database.read() as session:
        page = list_requests(session, chosen, limit, cursor)
    return Page(items=[RequestResource(**asdict(record)) for record in page.items], next_cursor=page.next_cursor)


def _recorded(database: Database, identifier: str) -> None:
    """Raises RequestNotFound."""
    with database.read() as session:
        get_request(session, identifier)
