"""A request that has just ended, in the shape of its row: the row itself is written a moment later."""

from dataclasses import asdict

from app.api.requests import RequestResource
from app.proxy.observer import RequestFinished
from app.telemetry.records import record_of_event


def finished_request(event: RequestFinished) -> RequestResource:
    """What GET /requests/{id} will show of it."""
    fields = asdict(record_of_event(event))
    for name in ("requested_model", "error", "finish_reason"):
        fields[name] = _sayable(fields[name])
    return RequestResource(**fields)


def _sayable(text: str | None) -> str | None:
    """JSON can smuggle in half a surrogate pair, which UTF-8 cannot say."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")
