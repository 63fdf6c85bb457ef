"""RequestRecord: one recorded request as a value, ratios computed from its counts."""

from dataclasses import dataclass
from datetime import datetime

from app.identifiers import id_text, id_time
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
    generation_seconds = seconds(row.generation_us)
    return RequestRecord(
        id=id_text(row.id),
        started_at=id_time(row.id),
        profile_id=context.profile_id if context else None,
        revision=context.revision if context else None,
        instance_id=None if row.instance_id is None else id_text(row.instance_id),
        engine_build=context.engine_build if context else None,
        argv_hash=context.argv_hash if context else None,
        device_set=context.device_set if context else None,
        requested_model=texts.requested_model,
        route_reason=texts.route_reason,
        endpoint=ENDPOINTS.decode(row.endpoint_code),
        stream=row.stream,
        outcome=OUTCOMES.decode(row.outcome_code),
        status_code=row.status_code,
        error=texts.error,
        queue_seconds=seconds(row.queue_us),
        time_to_first_token_seconds=seconds(row.time_to_first_token_us),
        duration_seconds=row.duration_us / 1e6,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        generated_tokens=row.generated_tokens,
        prompt_seconds=seconds(row.prompt_us),
        generation_seconds=generation_seconds,
        generation_tokens_per_second=generation_rate(row.generated_tokens, generation_seconds),
        draft_tokens=row.draft_tokens,
        accepted_tokens=row.accepted_tokens,
        acceptance_rate=acceptance_rate(row.draft_tokens, row.accepted_tokens),
        mean_acceptance_length_estimate=mean_acceptance_length_estimate(row.generated_tokens, row.accepted_tokens),
        method=context.method if context else None,
        category=None if row.category_code is None else CATEGORIES.decode(row.category_code),
        finish_reason=texts.finish_reason,
        client=texts.client,
    )


def seconds(microseconds: int | None) -> float | None:
    """Microseconds as seconds; None stays None."""
    return None if microseconds is None else microseconds / 1e6
