"""What the engine reports in answers of Anthropic's Messages form: how many tokens, and no times.

`input_tokens` leaves those out that were found in the cache. A stream tells them in its first event, and what it
generated in the last but one.
"""

from collections.abc import Sequence

import msgspec

from app.llama_server.timings import EngineReport, Failure, TokenCounts, decoded, engine_report, first_count


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Start(msgspec.Struct):
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Answer(msgspec.Struct):
    """A whole answer, or an event: an error of the engine within a stream has `type`, `code` and a text `message`."""

    type: str | None = None
    message: _Start | str | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: Failure | str | None = None
    code: int | None = None


_NO_USAGE = _Usage()
_decoder = msgspec.json.Decoder(_Answer)


def report_of_answer(body: bytes) -> EngineReport:
    """What a whole answer reports; an empty report where the bytes are not such an answer."""
    answer = decoded(_decoder, body) or _Answer()
    usage = answer.usage or _NO_USAGE
    return _report(usage, usage.output_tokens, answer.stop_reason, answer.error)


def report_of_events(events: Sequence[bytes]) -> EngineReport:
    """What the first and the last events of a stream report, oldest first.

    The first event says that nothing is generated yet, which is no count of what was.
    """
    prompt, generated, reason, error = _NO_USAGE, None, None, None
    for data in events:
        event = decoded(_decoder, data)
        if event is None:
            continue
        if event.type == "message_start" and isinstance(event.message, _Start):
            prompt = event.message.usage or prompt
        elif event.type == "message_delta":
            generated = event.usage.output_tokens if event.usage else generated
            reason = event.delta.stop_reason if event.delta else reason
        error = event.error or _engine_error(event) or error
    return _report(prompt, generated, reason, error)


def is_end(data: bytes) -> bool:
    """Whether the stream ends with this event."""
    event = decoded(_decoder, data)
    return event is not None and event.type == "message_stop"


def _engine_error(event: _Answer) -> Failure | None:
    return Failure(event.type, event.code) if event.code is not None and isinstance(event.message, str) else None


def _report(usage: _Usage, generated: int | None, reason: str | None, error: Failure | str | None) -> EngineReport:
    fresh, cached = first_count(usage.input_tokens), first_count(usage.cache_read_input_tokens)
    prompt = None if fresh is None else fresh + (cached or 0)
    return engine_report(None, TokenCounts(prompt, cached, generated), reason, error)
