"""What is told of each relayed request, and how it is found out without touching the bytes that pass."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from app.events import Event
from app.identifiers import id_text
from app.instances.lease import LaunchContext
from app.llama_server.answer_formats import DONE, AnswerFormat
from app.llama_server.timings import EMPTY, EngineReport
from app.proxy.asgi import Header
from app.proxy.endpoints import Dialect, Endpoint
from app.proxy.headers import client_request_id
from app.proxy.kept import KeptAnswer, KeptStream
from app.proxy.sse import OutputWatch, ends_between_events, first_event, last_events

# The finish reason, the usage, the timings and the end mark stand in the last few events; those of several choices
# are counted in.
_LAST_EVENTS = 16
_MOST_MODEL_CHARACTERS = 128
_MOST_ERROR_CHARACTERS = 500


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_FAILED = "upstream_failed"
    CLIENT_GONE = "client_gone"
    CANCELLED = "cancelled"


class RequestFinished(msgspec.Struct, Event, frozen=True, gc=False):
    """A request has ended, however it did; told exactly once for each.

    `status_code` is what the client was sent, None where nothing was; `client` the name of its key, `category` a
    word of `categories.py`, None where an endpoint has none. `requested_model` is cut, and `error` quotes no client.
    `queue_us` is the wait from the arrival to the sending upstream, or to the end where nothing was sent;
    `time_to_first_token_us` is from the arrival to the first output event of the engine's stream: where it answers in
    one piece it is not known. No text of prompt or answer is in here.
    """

    request_id: int
    client_request_id: str | None
    instance_id: int | None
    context: LaunchContext | None
    profile_id: str | None
    requested_model: str | None
    route_reason: str | None
    endpoint: Endpoint
    stream: bool
    outcome: Outcome
    status_code: int | None
    error: str | None
    queue_us: int
    time_to_first_token_us: int | None
    duration_us: int
    report: EngineReport
    client: str | None = None
    category: str | None = None


@dataclass(slots=True)
class Observation:
    """Gathers what is known of one request while it passes; the relay fills in the first fields as it learns them.

    Chunks are only kept, within bounds, and read when the answer has ended, as its `format` says.
    """

    request_id: int
    endpoint: Endpoint
    format: AnswerFormat
    client_request_id: str | None = None
    client: str | None = None
    category: str | None = None
    instance_id: int | None = None
    context: LaunchContext | None = None
    profile_id: str | None = None
    requested_model: str | None = None
    route_reason: str | None = None
    stream: bool = False
    status_code: int | None = None
    time_to_first_token_us: int | None = None
    clock: Callable[[], float] = time.perf_counter

    _arrived: float = 0.0
    _queue_us: int | None = None
    _kept: KeptAnswer | KeptStream | None = None
    _watch: OutputWatch | None = None

    def __post_init__(self) -> None:
        self._arrived = self.clock()

    def sent(self) -> None:
        """The request goes to the engine now."""
        self._queue_us = self._since_arrival_us()

    def answered(self, *, is_events: bool) -> None:
        """The engine answers, with events or in one piece."""
        if is_events:
            self._kept = KeptStream(last_event_is_long=self.format.last_event_is_long)
            self._watch = OutputWatch(self.format.output_mark)
        else:
            self._kept = KeptAnswer(self.format.answer_bytes, suffices=self.format.beginning_suffices)
            self._watch = self.time_to_first_token_us = None

    def chunk(self, data: bytes) -> None:
        """These bytes of the answer pass now."""
        if self._kept is not None:
            self._kept.add(data)
        if self._watch is not None and self._watch.feed(data):
            self.time_to_first_token_us = self._since_arrival_us()
            self._watch = None

    def conclude(self) -> "Conclusion":
        """Read what was kept."""
        kept = self._kept
        if isinstance(kept, KeptStream):
            return self._conclude_stream(kept)
        answer = kept.joined() if kept is not None else b""
        report = self.format.of_answer(answer) if answer else EMPTY
        return Conclusion(report, has_end_mark=False, is_complete=True)

    def _conclude_stream(self, kept: KeptStream) -> "Conclusion":
        stream, form = kept.joined(), self.format
        events = last_events(stream, _LAST_EVENTS, from_start=kept.is_whole)
        read = [event for event in events if event != DONE]
        if form.first_event_counts:
            read.insert(0, first_event(kept.beginning(stream)))
        report = form.of_events(read)
        has_end_mark = bool(events) and form.is_end(events[-1])
        # A last event that was too long to be kept may have been the end.
        is_unread = not events and not kept.is_whole and ends_between_events(stream)
        has_reason = form.finish_reason_is_end and report.finish_reason is not None
        return Conclusion(
            report,
            has_end_mark=has_end_mark,
            is_complete=has_end_mark or has_reason or form.ends_unmarked or is_unread,
        )

    def finish(self, outcome: Outcome, error: str | None, report: EngineReport | None) -> RequestFinished:
        """The fact to be told; without a `report`, of what was kept so far."""
        duration_us = self._since_arrival_us()
        return RequestFinished(
            request_id=self.request_id,
            client_request_id=self.client_request_id,
            instance_id=self.instance_id,
            context=self.context,
            profile_id=self.profile_id,
            requested_model=_cut(self.requested_model, _MOST_MODEL_CHARACTERS),
            route_reason=self.route_reason,
            endpoint=self.endpoint,
            stream=self.stream,
            outcome=outcome,
            status_code=self.status_code,
            error=_cut(error, _MOST_ERROR_CHARACTERS),
            # What never came to an engine has done nothing but wait.
            queue_us=duration_us if self._queue_us is None else self._queue_us,
            time_to_first_token_us=self.time_to_first_token_us,
            duration_us=duration_us,
            report=self.conclude().report if report is None else report,
            client=self.client,
            category=self.category,
        )

    def _since_arrival_us(self) -> int:
        return round((self.clock() - self._arrived) * 1_000_000)


def identify(observation: Observation, headers: Sequence[Header], dialect: Dialect) -> Sequence[Header]:
    """Take the client's own id of its request, if it has one; the headers that tell it the id by which it is known."""
    observation.client_request_id = client_request_id(headers)
    shown = (observation.client_request_id or id_text(observation.request_id)).encode()
    told = [(b"x-request-id", shown)]
    if dialect is Dialect.ANTHROPIC:
        told.append((b"request-id", shown))  # where its clients look
    return told


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the end of an answer says; all but the report matters for streams only.

    `is_complete` says that nothing is missing from a stream that has come to its end, `has_end_mark` that nothing can
    follow, whether or not it has.
    """

    report: EngineReport
    has_end_mark: bool
    is_complete: bool


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]
