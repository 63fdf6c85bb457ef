"""RequestRecord: one recorded request as a value, ratios computed from its counts."""

from dataclasses import dataclass
from datetime import datetime

from app.identifiers import id_text, id_time
from app.instances.lease import LaunchContext
from app.llama_server.timings import EngineReport
from app.proxy.observer import RequestFinished
from app.speculative.acceptance import acceptance_rate, generation_rate, mean_acceptance_length_estimate
from app.telemetry.codes import CATEGORIES, ENDPOINTS, OUTCOMES
from app.telemetry.tables import LaunchContextRow, RequestRow


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What one request cost. None means that it was not reported, or does not apply; it never means zero.

    `prompt_tokens` includes `cached_tokens`; `method` is that of the launch, also where nothing was drafted.
    `client` is the name of the key that was shown. `category` is a word of the relay's classifier, or the client's own.
    """

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
    outcome: str
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


@dataclass(frozen=True, slots=True)
class RequestTexts:
    """The labels of one row, looked up."""

    requested_model: str | None = None
    route_reason: str | None = None
    error: str | None = None
    finish_reason: str | None = None
    client: str | None = None


def record_of(row: RequestRow, context: LaunchContextRow | None, texts: RequestTexts) -> RequestRecord:
    """The value of one row."""
    category = None if row.category_code is None else CATEGORIES.decode(row.category_code)
    profile_id = context.profile_id if context else None
    return _record(
        row.id, profile_id, ENDPOINTS.decode(row.endpoint_code), OUTCOMES.decode(row.outcome_code), category,
        context=context, passage=row, counts=row, texts=texts,
    )  # fmt: skip


def record_of_event(event: RequestFinished) -> RequestRecord:
    """What the row of a request that has just ended will say."""
    texts = RequestTexts(
        requested_model=event.requested_model,
        route_reason=event.route_reason,
        error=event.report.error if event.error is None else event.error,
        finish_reason=event.report.finish_reason,
        client=event.client,
    )
    profile_id = event.context.profile_id if event.context else event.profile_id
    return _record(
        event.request_id, profile_id, event.endpoint.value, event.outcome.value, event.category,
        context=event.context, passage=event, counts=event.report, texts=texts,
    )  # fmt: skip


def _record(
    request_id: int,
    profile_id: str | None,
    endpoint: str,
    outcome: str,
    category: str | None,
    *,
    context: LaunchContextRow | LaunchContext | None,
    passage: RequestRow | RequestFinished,
    counts: RequestRow | EngineReport,
    texts: RequestTexts,
) -> RequestRecord:
    generation_seconds = seconds(counts.generation_us)
    return RequestRecord(
        id=id_text(request_id),
        started_at=id_time(request_id),
        profile_id=profile_id,
        revision=context.revision if context else None,
        instance_id=None if passage.instance_id is None else id_text(passage.instance_id),
        engine_build=context.engine_build if context else None,
        argv_hash=context.argv_hash if context else None,
        device_set=context.device_set if context else None,
        requested_model=texts.requested_model,
        route_reason=texts.route_reason,
        endpoint=endpoint,
        stream=passage.stream,
        outcome=outcome,
        status_code=passage.status_code,
        error=texts.error,
        queue_seconds=seconds(passage.queue_us),
        time_to_first_token_seconds=seconds(passage.time_to_first_token_us),
        duration_seconds=passage.duration_us / 1e6,
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        generated_tokens=counts.generated_tokens,
        prompt_seconds=seconds(counts.prompt_us),
        generation_seconds=generation_seconds,
        generation_tokens_per_second=generation_rate(counts.generated_tokens, generation_seconds),
        draft_tokens=counts.draft_tokens,
        accepted_tokens=counts.accepted_tokens,
        acceptance_rate=acceptance_rate(counts.draft_tokens, counts.accepted_tokens),
        mean_acceptance_length_estimate=mean_acceptance_length_estimate(
            counts.generated_tokens, counts.accepted_tokens
        ),
        method=context.method if context else None,
        category=category,
        finish_reason=texts.finish_reason,
        client=texts.client,
    )


def seconds(microseconds: int | None) -> float | None:
    """Microseconds as seconds; None stays None."""
    return None if microseconds is None else microseconds / 1e6
