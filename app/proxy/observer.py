"""What is told of each relayed request, and how it is found out without touching the bytes that pass."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from app.events import Event
from app.instances.lease import LaunchContext
from app.llama_server.timings import EMPTY, EngineReport, report_of_answer, report_of_events
from app.proxy.sse import DONE, OutputWatch, last_events

_MOST_STREAM_BYTES = 256 * 1024
_MOST_ANSWER_BYTES = 16 * 1024 * 1024
# The finish reason, the usage, the timings and the end mark stand in the last few events; those of several choices
# are counted in.
_LAST_EVENTS = 16
_MOST_MODEL_CHARACTERS = 256
_MOST_ERROR_CHARACTERS = 500


class Endpoint(StrEnum):
    """The endpoints whose requests are relayed."""

    CHAT_COMPLETIONS = "chat_completions"
    COMPLETIONS = "completions"


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_FAILED = "upstream_failed"
    CLIENT_GONE = "client_gone"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RequestFinished(Event):
    """A request has ended, however it did; told exactly once for each.

    `status_code` is what the client was sent, None where nothing was. `queue_us` is the wait from the arrival to
    the sending upstream, `time_to_first_token_us` from the arrival to the first output event of a stream: of an
    answer in one piece it is not known. No text of prompt or answer is in here.
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


@dataclass(slots=True)
class Observation:
    """Gathers what is known of one request while it passes; the relay fills in the first fields as it learns them.

    Chunks are only kept, within bounds, and read when the answer has ended.
    """

    request_id: int
    endpoint: Endpoint
    client_request_id: str | None = None
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
    _queue_us: int = 0
    _chunks: deque[bytes] = field(default_factory=deque)
    _kept_bytes: int = 0
    _is_whole: bool = True
    _is_events: bool = False
    _watch: OutputWatch | None = None

    def __post_init__(self) -> None:
        self._arrived = self.clock()

    def sent(self) -> None:
        """The request goes to the engine now."""
        self._queue_us = self._since_arrival_us()

    def answered(self, *, is_events: bool) -> None:
        """The engine answers, with events or in one piece."""
        self._is_events = is_events
        if is_events:
            self._watch = OutputWatch()

    def chunk(self, data: bytes) -> None:
        """These bytes of the answer pass now."""
        self._chunks.append(data)
        self._kept_bytes += len(data)
        if self._is_events:
            if self._watch is not None and self._watch.feed(data):
                self.time_to_first_token_us = self._since_arrival_us()
                self._watch = None
            # The last chunk stays however long it is: the end of the stream is in it.
            while self._kept_bytes > _MOST_STREAM_BYTES and len(self._chunks) > 1:
                self._kept_bytes -= len(self._chunks.popleft())
                self._is_whole = False
        elif self._kept_bytes > _MOST_ANSWER_BYTES:
            self._chunks.clear()
            self._is_whole = False

    def conclude(self) -> "Conclusion":
        """Read what was kept."""
        kept = b"".join(self._chunks)
        if not self._is_events:
            report = report_of_answer(kept) if self._is_whole and kept else EMPTY
            return Conclusion(report, has_end_mark=True, ends_between_events=True)
        events = last_events(kept, _LAST_EVENTS, from_start=self._is_whole)
        report = report_of_events([event for event in events if event != DONE])
        return Conclusion(
            report,
            has_end_mark=bool(events) and events[-1] == DONE,
            ends_between_events=not kept or kept.endswith((b"\n\n", b"\r\n\r\n")),
        )

    def finish(self, outcome: Outcome, error: str | None, report: EngineReport | None) -> RequestFinished:
        """The fact to be told; without a `report`, of what was kept so far."""
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
            queue_us=self._queue_us,
            time_to_first_token_us=self.time_to_first_token_us,
            duration_us=self._since_arrival_us(),
            report=self.conclude().report if report is None else report,
        )

    def _since_arrival_us(self) -> int:
        return round((self.clock() - self._arrived) * 1_000_000)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the end of an answer says; `has_end_mark` and `ends_between_events` matter for streams only."""

    report: EngineReport
    has_end_mark: bool
    ends_between_events: bool


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]
