"""A request that has just ended, in the shape of its row: the row itself is written a moment later."""

from app.api.requests import RequestResource
from app.identifiers import id_text, id_time
from app.proxy.observer import RequestFinished
from app.speculative.acceptance import acceptance_rate, generation_rate, mean_acceptance_length_estimate
from app.telemetry.records import seconds


def finished_request(event: RequestFinished) -> RequestResource:
    """What GET /requests/{id} will show of it."""
    context, report = event.context, event.report
    generation_seconds = seconds(report.generation_us)
    return RequestResource(
        id=id_text(event.request_id),
        started_at=id_time(event.request_id),
        profile_id=context.profile_id if context else event.profile_id,
        revision=context.revision if context else None,
        instance_id=None if event.instance_id is None else id_text(event.instance_id),
        engine_build=context.engine_build if context else None,
        argv_hash=context.argv_hash if context else None,
        device_set=context.device_set if context else None,
        requested_model=_sayable(event.requested_model),
        route_reason=event.route_reason,
        endpoint=event.endpoint.value,
        stream=event.stream,
        outcome=event.outcome.value,
        status_code=event.status_code,
        error=_sayable(report.error if event.error is None else event.error),
        queue_seconds=seconds(event.queue_us),
        time_to_first_token_seconds=seconds(event.time_to_first_token_us),
        duration_seconds=event.duration_us / 1e6,
        prompt_tokens=report.prompt_tokens,
        cached_tokens=report.cached_tokens,
        generated_tokens=report.generated_tokens,
        prompt_seconds=seconds(report.prompt_us),
        generation_seconds=generation_seconds,
        generation_tokens_per_second=generation_rate(report.generated_tokens, generation_seconds),
        draft_tokens=report.draft_tokens,
        accepted_tokens=report.accepted_tokens,
        acceptance_rate=acceptance_rate(report.draft_tokens, report.accepted_tokens),
        mean_acceptance_length_estimate=mean_acceptance_length_estimate(
            report.generated_tokens, report.accepted_tokens
        ),
        method=context.method if context else None,
        category=event.category,
        finish_reason=_sayable(report.finish_reason),
        client=event.client,
    )


def _sayable(text: str | None) -> str | None:
    """JSON can smuggle in half a surrogate pair, which UTF-8 cannot say."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")
