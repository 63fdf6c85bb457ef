"""Finished requests as the relay tells them, with every field that a test does not care for filled in."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from app.identifiers import first_id_at
from app.instances.lease import LaunchContext
from app.llama_server.timings import EngineReport
from app.proxy.endpoints import Endpoint
from app.proxy.observer import Outcome, RequestFinished

CONTEXT = LaunchContext("gemma", 3, "b11434-abc", "0123456789abcdef", "CUDA0,CUDA1", "draft")
PLAIN_CONTEXT = replace(CONTEXT, profile_id="plain", revision=1, argv_hash="fedcba9876543210", method="none")
START_SECONDS = 1_760_000_000
INSTANCE_ID = first_id_at((START_SECONDS - 60) * 1000) + 5

DRAFTED = EngineReport(
    prompt_tokens=30,
    cached_tokens=10,
    generated_tokens=65,
    prompt_us=200_000,
    generation_us=1_600_000,
    draft_tokens=50,
    accepted_tokens=40,
    finish_reason="stop",
)
UNDRAFTED = structs.replace(DRAFTED, draft_tokens=None, accepted_tokens=None, finish_reason="length")


def finished(number: int = 0, **changes: Any) -> RequestFinished:
    """A completed stream that drafted; `number` counts seconds from START_SECONDS to its arrival."""
    context = changes.get("context", CONTEXT)
    fields: dict[str, Any] = {
        "request_id": first_id_at(round((START_SECONDS + number) * 1000)) + 7,
        "client_request_id": None,
        "instance_id": INSTANCE_ID,
        "context": context,
        "profile_id": context.profile_id if context else None,
        "requested_model": "gemma",
        "route_reason": "id",
        "endpoint": Endpoint.CHAT_COMPLETIONS,
        "stream": True,
        "outcome": Outcome.COMPLETED,
        "status_code": 200,
        "error": None,
        "queue_us": 1500,
        "time_to_first_token_us": 250_000,
        "duration_us": 2_000_000,
        "report": DRAFTED,
    }
    return RequestFinished(**{**fields, **changes})


def rejected(number: int = 0, **changes: Any) -> RequestFinished:
    """A request for a model that no profile answers to: nothing served it."""
    fields: dict[str, Any] = {
        "context": None,
        "instance_id": None,
        "requested_model": "nobody/knows-this",
        "route_reason": None,
        "outcome": Outcome.REJECTED,
        "status_code": 404,
        "error": "no profile answers to it",
        "time_to_first_token_us": None,
        "report": EngineReport(),
    }
    return finished(number, **{**fields, **changes})
