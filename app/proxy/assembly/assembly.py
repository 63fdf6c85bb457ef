"""The answer to one request, put together while its events come."""

import msgspec

from app.llama_server.answer_formats import DONE
from app.proxy.assembly.events import ErrorEvent, Event, Usage
from app.proxy.assembly.message import MessageParts
from app.proxy.assembly.outcome import Assembled, CutShort, EngineRefused, NotUnderstood, Outcome
from app.proxy.assembly.parts import Parts, UnknownPiece
from app.proxy.assembly.text import TextParts
from app.proxy.endpoints import Endpoint
from app.proxy.request_body import UNREADABLE

_event_decoder = msgspec.json.Decoder(Event)
_error_decoder = msgspec.json.Decoder(ErrorEvent)
_usage_decoder = msgspec.json.Decoder(Usage)

_ERROR = b'{"error"'


class Assembly:
    """Takes the events of a stream that `streaming_body` asked for; `result` may be asked at any time.

    The answer is complete with the finish reason and the usage. What comes after an error, or after an event that is
    not understood, is passed over.
    """

    __slots__ = ("_end", "_finish_reason", "_generated", "_last", "_object", "_parts")

    def __init__(self, endpoint: Endpoint) -> None:
        is_chat = endpoint is Endpoint.CHAT_COMPLETIONS
        self._object = "chat.completion" if is_chat else "text_completion"
        self._parts: Parts = MessageParts() if is_chat else TextParts()
        self._finish_reason: str | None = None
        self._generated = 0
        # The one with the usage.
        self._last: Event | None = None
        self._end: EngineRefused | NotUnderstood | None = None

    def feed(self, payload: bytes) -> None:
        """Take in the data of the next event."""
        if payload == DONE or self._end is not None:
            return
        if payload.startswith(_ERROR):
            self._end = _refusal(payload)
            return
        try:
            self._take(_event_decoder.decode(payload))
        except (*UNREADABLE, UnknownPiece) as error:
            self._end = NotUnderstood(f"an event of the engine is not understood: {error}")

    def _take(self, event: Event) -> None:
        if self._last is not None or len(event.choices) > 1:
            raise UnknownPiece("more than one answer, or one of more than one choice")
        for choice in event.choices:
            if choice.index != 0 or self._finish_reason is not None:
                raise UnknownPiece("another choice, or more of one that has ended")
            self._parts.add(choice, event.timings)
            self._finish_reason = choice.finish_reason
        if event.usage:
            self._generated = _usage_decoder.decode(event.usage).completion_tokens
            self._last = event

    @property
    def riddle(self) -> str | None:
        """Why no answer will come of this stream; None as long as all is understood."""
        return self._end.reason if isinstance(self._end, NotUnderstood) else None

    def result(self) -> Outcome:
        """What came of the stream, if this is its end."""
        if self._end is not None:
            return self._end
        last, finish_reason = self._last, self._finish_reason
        if last is None or finish_reason is None:
            return CutShort(self._parts.has_output)
        answer = {
            "choices": [self._parts.built(finish_reason)],
            "created": last.created,
            "model": last.model,
            "system_fingerprint": last.system_fingerprint,
            "object": self._object,
            "usage": last.usage,
            "id": last.id,
        }
        if last.timings:
            answer["timings"] = last.timings
        return Assembled(msgspec.json.encode(answer), self._parts.may_differ(finish_reason, self._generated))


def _refusal(payload: bytes) -> EngineRefused | NotUnderstood:
    try:
        status = _error_decoder.decode(payload).error.code
    except UNREADABLE as error:
        return NotUnderstood(f"an error event of the engine is not understood: {error}")
    return EngineRefused(status if 400 <= status <= 599 else 500, payload)
