"""GET /requests, GET /requests/{id} and GET /stats: what was recorded of finished requests."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict

from app.api import request_export
from app.api.request_filters import filters, only
from app.api.resources import Page
from app.database import Database
from app.errors import RequestOver
from app.speculative.speedup import CONFIDENCE, Estimate
from app.telemetry.engine_acceptance import EngineAcceptance, engine_acceptance
from app.telemetry.queries import QueryInvalid, RequestFilters, get_request, list_requests
from app.telemetry.speedups import Speedup, Speedups
from app.telemetry.stats import StatsRow, stats

_LONG_QUESTIONS_MOST = 2


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


class EngineAcceptanceResource(BaseModel):
    """What the engines themselves counted of their drafts, over all traffic of the group; ratios are of these sums.

    Counts are told in steps of `rounded_to`: 1 where they are exact.
    """

    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    acceptance_rate_by_position: Sequence[float] | None
    rounded_to: int


class IntervalResource(BaseModel):
    """Holds the true value with this confidence."""

    low: float
    high: float
    confidence: float


class GainResource(BaseModel):
    """Generation tokens/s as a multiple of the baseline's, over requests with at least two tokens.

    `interval` is null where there is too little to draw from, or too many groups; `pays` is null where it holds 1.
    """

    speedup: float
    interval: IntervalResource | None
    pays: bool | None
    requests: int
    baseline_requests: int


class SpeedupResource(GainResource):
    """Category for category: what the tokens would have taken without speculation ÷ what they took.

    Categories count that have five requests on each side. `baselines` are profiles of the same target that recorded
    requests without speculation, whenever that was. `differences` names what the two sides do not have in common:
    `device_set`, `engine_build`, and parts of the profiles.
    """

    by_category: Mapping[str, GainResource]
    baselines: Sequence[str]
    differences: Sequence[str]


class ProvenanceResource(BaseModel):
    """What served the group. `mixed` names those of which there are several: then it is not one thing's measure."""

    revision: Sequence[int]
    argv_hash: Sequence[str]
    engine_build: Sequence[str]
    device_set: Sequence[str]
    mixed: Sequence[str]


class StatsResource(BaseModel):
    """One group; the names of `group_by` are members as well.

    Counts, sums and rates are exact. Percentiles are within `percentiles_relative_error` of values that were measured:
    0 where they are those values, 0.02 where roll-ups were asked. It is null where the hour that runs has over 200,000
    requests: then percentiles are of the newest of them.

    `engine_acceptance` is null where no engine has drafted, and where only requests can tell: grouped or chosen by
    category or outcome. `speedup` is null for groups that are not by profile, do not speculate, or have no baseline.
    """

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
    time_per_output_token_seconds: PercentilesResource | None
    queue_seconds: PercentilesResource | None
    percentiles_relative_error: float | None
    engine_acceptance: EngineAcceptanceResource | None
    provenance: ProvenanceResource
    speedup: SpeedupResource | None


class ActiveRequests(Protocol):
    """The requests in flight."""

    def list(self) -> Sequence[RequestResource]:
        """All of them, newest first."""

    def cancel(self, identifier: str) -> RequestResource | None:
        """End one, by its id or its client's; None where no such request is in flight."""


def router(database: Database, active: ActiveRequests) -> APIRouter:
    """What `database` holds of finished requests, and those in flight."""
    routes = APIRouter(tags=["requests"])
    speedups = Speedups(database)
    # They read much: many at once would take the threads that others wait for.
    long_questions = asyncio.Semaphore(_LONG_QUESTIONS_MOST)

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

    @routes.get("/stats", dependencies=[only("group_by")])
    async def read_stats(
        chosen: Annotated[RequestFilters, Depends(filters)],
        group_by: Annotated[str, Query(description="names joined by commas; empty for one row of all")] = "profile",
    ) -> Page[StatsResource]:
        """Counts, sums, rates and percentiles of each group, and what speculation gained it.

        Speed-ups are up to a minute old. Two questions at a time are answered; others wait.
        """
        names = [name.strip() for name in group_by.split(",") if name.strip()]
        async with long_questions:
            return await asyncio.to_thread(_stats, database, speedups, chosen, names)

    return routes


def _stats(database: Database, speedups: Speedups, chosen: RequestFilters, names: Sequence[str]) -> Page[StatsResource]:
    with database.read() as session:
        accepted = engine_acceptance(session, chosen, names)
        rows = stats(session, chosen, names, others=accepted)
    gained = speedups.of(chosen, names)
    keys = [tuple(row.group.values()) for row in rows]
    items = [_stats_resource(row, accepted.get(key), gained.get(key)) for row, key in zip(rows, keys, strict=True)]
    return Page(items=items)


def _page(database: Database, chosen: RequestFilters, limit: int, cursor: str | None) -> Page[RequestResource]:
    with database.read() as session:
        page = list_requests(session, chosen, limit, cursor)
    return Page(items=[RequestResource(**asdict(record)) for record in page.items], next_cursor=page.next_cursor)


def _recorded(database: Database, identifier: str) -> None:
    """Raises RequestNotFound."""
    with database.read() as session:
        get_request(session, identifier)


def _stats_resource(row: StatsRow, accepted: EngineAcceptance | None, gained: Speedup | None) -> StatsResource:
    fields: dict[str, Any] = asdict(row)
    overall = fields.pop("generation_tokens_per_second_overall")
    if row.generation_tokens_per_second is not None and overall is not None:
        fields["generation_tokens_per_second"]["overall"] = overall
    counted = None if accepted is None else asdict(accepted)
    speedup = None if gained is None else _speedup_resource(gained)
    return StatsResource(**fields.pop("group"), **fields, engine_acceptance=counted, speedup=speedup)


def _speedup_resource(gained: Speedup) -> SpeedupResource:
    return SpeedupResource(
        **_gain(gained.estimate),
        by_category={name: GainResource(**_gain(estimate)) for name, estimate in gained.by_category.items()},
        baselines=gained.baselines,
        differences=gained.differences,
    )


def _gain(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.interval
    shown = None if interval is None else IntervalResource(low=interval[0], high=interval[1], confidence=CONFIDENCE)
    return {**asdict(estimate), "interval": shown, "pays": estimate.pays}
