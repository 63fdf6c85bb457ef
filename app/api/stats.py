"""GET /stats: what recorded requests add up to."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict

from app.api.request_filters import filters, only
from app.api.resources import Page
from app.database import Database
from app.speculative.speedup import CONFIDENCE, Estimate
from app.telemetry.comparison import NotCompared, Speedup
from app.telemetry.engine_acceptance import EngineAcceptance, engine_acceptance
from app.telemetry.queries import RequestFilters
from app.telemetry.speedups import Speedups
from app.telemetry.stats import StatsRow, stats

_LONG_QUESTIONS_MOST = 2


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


class TooFewResource(BaseModel):
    """Requests with a rate on both sides; five on each are the least."""

    requests: int
    baseline_requests: int


class SpeedupResource(BaseModel):
    """Category for category: what the tokens would have taken without speculation ÷ what they took.

    Categories count that have five requests on each side; `not_compared` has the others. `baselines` are profiles of
    the same target that recorded requests without speculation, whenever that was. `differences` names what the two
    sides do not have in common: `device_set`, `engine_build`, and parts of the profiles. Where `speedup` is null,
    `reason` says why: `no-baseline` or `too-few-requests`.
    """

    speedup: float | None
    interval: IntervalResource | None
    pays: bool | None
    requests: int
    baseline_requests: int
    reason: NotCompared | None
    by_category: Mapping[str, GainResource]
    not_compared: Mapping[str, TooFewResource]
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
    category or outcome. `speedup` is null for groups that are not by profile, and for those
    without a request that speculated and has a rate.
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


def router(database: Database) -> APIRouter:
    """What `database` adds up to."""
    routes = APIRouter(tags=["requests"])
    speedups = Speedups(database)
    # They read much: many at once would take the threads that others wait for.
    long_questions = asyncio.Semaphore(_LONG_QUESTIONS_MOST)

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


def _stats_resource(row: StatsRow, accepted: EngineAcceptance | None, gained: Speedup | None) -> StatsResource:
    fields: dict[str, Any] = asdict(row)
    overall = fields.pop("generation_tokens_per_second_overall")
    if row.generation_tokens_per_second is not None and overall is not None:
        fields["generation_tokens_per_second"]["overall"] = overall
    counted = None if accepted is None else asdict(accepted)
    speedup = None if gained is None else _speedup_resource(gained)
    return StatsResource(**fields.pop("group"), **fields, engine_acceptance=counted, speedup=speedup)


def _speedup_resource(gained: Speedup) -> SpeedupResource:
    nothing: dict[str, Any] = {"speedup": None, "interval": None, "pays": None, "requests": 0, "baseline_requests": 0}
    few = {
        name: TooFewResource(requests=its, baseline_requests=plain)
        for name, (its, plain) in gained.not_compared.items()
    }
    return SpeedupResource(
        **nothing if gained.estimate is None else _gain(gained.estimate),
        reason=gained.reason,
        by_category={name: GainResource(**_gain(estimate)) for name, estimate in gained.by_category.items()},
        not_compared=few,
        baselines=gained.baselines,
        differences=gained.differences,
    )


def _gain(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.interval
    shown = None if interval is None else IntervalResource(low=interval[0], high=interval[1], confidence=CONFIDENCE)
    return {**asdict(estimate), "interval": shown, "pays": estimate.pays}
