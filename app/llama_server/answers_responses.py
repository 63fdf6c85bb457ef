"""What the engine reports in answers of OpenAI's Responses form.

In one piece it says how many tokens, and no times. As a stream its last event has the timings beside the response.
"""

from collections.abc import Sequence

import msgspec

from app.llama_server.timings import EngineReport, Failure, Timings, TokenCounts, decoded, engine_report

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: Failure | str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    response: _Response | None = None
    timings: Timings | None = None
    error: Failure | str | None = None


_NO_USAGE = _Usage()
_NO_RESPONSE = _Response()
_whole = msgspec.json.Decoder(_Response)
_event = msgspec.json.Decoder(_Event)


def report_of_answer(body: bytes) -> EngineReport:
    """What a whole answer reports; an empty report where the bytes are not such an answer."""
    return _report(decoded(_whole, body) or _NO_RESPONSE, None, None)


def report_of_events(events: Sequence[bytes]) -> EngineReport:
    """What the last events of a stream report, oldest first."""
    response, timings, error = _NO_RESPONSE, None, None
    for data in events:
        event = decoded(_event, data)
        if event is not None:
            timings = event.timings or timings
            error = event.error or error
            if event.type in _ENDS and event.response is not None:
                response = event.response
    return _report(response, timings, error)


def is_end(data: bytes) -> bool:
    """Whether the stream ends with this event."""
    event = decoded(_event, data)
    return event is not None and event.type in _ENDS


def _report(response: _Response, timings: Timings | None, error: Failure | str | None) -> EngineReport:
    usage = response.usage or _NO_USAGE
    details = usage.input_tokens_details or _InputDetails()
    counts = TokenCounts(usage.input_tokens, details.cached_tokens, usage.output_tokens)
    why_incomplete = response.incomplete_details.reason if response.incomplete_details else None
    return engine_report(timings, counts, why_incomplete or response.status, response.error or error)
