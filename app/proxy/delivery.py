"""What reaches the client: the engine's answer as it comes, or put together from a stream, or an error."""

from collections.abc import Callable

from app.errors import PacelineError, RequestError, UpstreamFailed
from app.instances.lease import Lease
from app.llama_server.timings import EngineReport
from app.proxy.asgi import Answer, AnswerCut, Header, Send, send_answer
from app.proxy.assembly.assembly import Assembly
from app.proxy.assembly.outcome import Assembled, EngineRefused
from app.proxy.assembly.split import EventSplitter
from app.proxy.connection import Connection
from app.proxy.endpoints import Dialect, Endpoint
from app.proxy.headers import EVENT_STREAM_HEADERS, is_event_stream, response_headers
from app.proxy.observer import Observation, Outcome
from app.proxy.sse import WholeLines, event_of

# A comment, with which an engine keeps a stream alive: it comes also where nothing is computed any more.
_PING = b":"
_JSON: Header = (b"content-type", b"application/json; charset=utf-8")


class RequestCancelled(RequestError):
    """Somebody with the right to do so cancelled the request."""

    code = "request-cancelled"


class Unforeseen(RequestError):
    """The service itself made a mistake."""

    code = "internal-error"


class StreamNotUnderstood(Exception):
    """An engine's stream holds what no answer can be made of; the client has been told nothing yet."""


class Delivery:
    """One answer on its way to one client.

    The status goes out only when the engine's first bytes are there, so what fails before is an error answer; what
    fails later ends an event stream with an error event, and cuts any other answer short. `outcome`, `error` and
    `report` say what became of it.
    """

    __slots__ = (
        "_dialect",
        "_has_begun",
        "_is_events",
        "_lines",
        "_observation",
        "_render_error",
        "_send",
        "client_gone",
        "error",
        "headers",
        "outcome",
        "report",
    )

    def __init__(
        self,
        send: Send,
        observation: Observation,
        render_error: Callable[[PacelineError, Dialect], Answer],
        dialect: Dialect,
    ) -> None:
        self._send = send
        self._observation = observation
        self._render_error = render_error
        self._dialect = dialect
        self._has_begun = False
        self._is_events = False
        self._lines = WholeLines()
        self.headers: list[Header] = []
        self.client_gone = False
        self.outcome = Outcome.UPSTREAM_FAILED
        self.error: str | None = None
        self.report: EngineReport | None = None

    async def give_sign_of_life(self) -> None:
        """A comment: clients pass over it, and neither they nor proxies between give up meanwhile."""
        if not self._has_begun:
            self._has_begun = self._is_events = True
            self._observation.answered(is_events=True)
            headers = [*EVENT_STREAM_HEADERS, *self.headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": b": waiting\n\n", "more_body": True})

    async def pass_on(self, answer: Connection, lease: Lease) -> None:
        """The engine's bytes as they come; of events each line when it is whole."""
        observation, send, lines = self._observation, self._send, self._lines
        is_events = is_event_stream(answer.headers)
        observation.answered(is_events=is_events)
        chunk = await answer.read()
        observation.status_code = answer.status
        if self._has_begun and not is_events:
            await self._pass_as_event(answer, chunk)
            return
        self._is_events = is_events
        if not self._has_begun:
            headers = response_headers(answer.headers, self.headers, is_stream=is_events)
            self._has_begun = True
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        while not answer.at_end:
            observation.chunk(chunk)
            if not chunk.startswith(_PING):
                lease.came_on()
            if is_events:
                chunk = lines.feed(chunk)
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await answer.read()
        if chunk:
            observation.chunk(chunk)
            if is_events:
                chunk = lines.feed(chunk)
        chunk += self._conclude(answer.status)
        await send({"type": "http.response.body", "body": chunk, "more_body": False})
        if self.client_gone:
            self.outcome = self.left_early()

    async def _pass_as_event(self, answer: Connection, chunk: bytes) -> None:
        """An answer in one piece, an error as a rule, to a client that has been promised events."""
        observation = self._observation
        whole = chunk
        observation.chunk(chunk)
        while not answer.at_end:
            chunk = await answer.read()
            observation.chunk(chunk)
            whole += chunk
        self._conclude(answer.status)
        await self._send({"type": "http.response.body", "body": self._event_of(whole), "more_body": False})

    async def put_together(self, answer: Connection, lease: Lease, endpoint: Endpoint) -> None:
        """The engine's events as the one answer that the client asked for. Raises StreamNotUnderstood.

        Asked for a stream, the engine notices at once when this connection closes, also while it serves others.
        """
        if not is_event_stream(answer.headers):
            await self.pass_on(answer, lease)
            return
        observation = self._observation
        observation.answered(is_events=True)
        splitter, assembly = EventSplitter(), Assembly(endpoint)
        while True:
            try:
                chunk = await answer.read()
            except UpstreamFailed:
                if isinstance(assembly.result(), Assembled | EngineRefused):
                    break  # after its last event there is nothing to break off
                raise
            observation.chunk(chunk)
            if not chunk.startswith(_PING):
                lease.came_on()
            for payload in splitter.feed(chunk):
                assembly.feed(payload)
            if assembly.riddle is not None:
                raise StreamNotUnderstood(assembly.riddle)
            if answer.at_end:
                break
        self._conclude(answer.status)
        match assembly.result():
            case Assembled(body=body):
                status = answer.status
            case EngineRefused(status=status, body=body):
                pass
            case _:
                raise UpstreamFailed(self.error or "the engine's stream holds no whole answer")
        headers = [pair for pair in response_headers(answer.headers, self.headers, is_stream=False) if _is_kept(pair)]
        observation.status_code = status
        self._has_begun = True
        await send_answer(self._send, Answer(status, [_JSON], body), headers)

    def left_early(self) -> Outcome:
        """A client that has read the end mark, or the engine's error, has all there is: what follows it is nothing."""
        conclusion = self._observation.conclude() if self._is_events else None
        if conclusion is not None and conclusion.report.error is not None:
            self.error = _reported(conclusion.report.error)
            return Outcome.UPSTREAM_ERROR
        return Outcome.COMPLETED if conclusion is not None and conclusion.has_end_mark else Outcome.CLIENT_GONE

    async def fail(self, error: PacelineError) -> None:
        """Tell the client of the error, as well as can be done by now. Raises AnswerCut where nothing can be told."""
        self.error = error.recorded
        if isinstance(error, RequestCancelled):
            self.outcome = Outcome.CANCELLED
        elif isinstance(error, UpstreamFailed):
            self.outcome = Outcome.UPSTREAM_FAILED
        else:
            self.outcome = Outcome.REJECTED
        answer = self._render_error(error, self._dialect)
        if self._observation.status_code is None:
            # Told as it is also where the client was promised events before.
            self._observation.status_code = answer.status
        if not self._has_begun:
            self._has_begun = True
            await send_answer(self._send, answer, self.headers)
            return
        if not self._is_events:
            raise AnswerCut from error
        conclusion = self._observation.conclude()
        self.report = conclusion.report
        last = self._lines.rest
        if conclusion.has_end_mark:
            self.outcome, self.error = Outcome.COMPLETED, None
        elif conclusion.report.error is not None:
            # The engine's own last word says more; only its end may be missing.
            self.outcome, self.error = Outcome.UPSTREAM_ERROR, _reported(conclusion.report.error)
            last += b"" if self._lines.is_between_events and not last else b"\n\n"
        else:
            last = self._error_event(error)
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    def _conclude(self, status: int) -> bytes:
        """Judge an answer that came to its end; returns what is left to send: an error event where the end is none."""
        conclusion = self._observation.conclude()
        report = self.report = conclusion.report
        if status >= 400 or report.error is not None:
            self.outcome = Outcome.UPSTREAM_ERROR
            self.error = _reported(report.error) if report.error else f"the engine answered {status}"
        elif conclusion.is_complete:
            self.outcome = Outcome.COMPLETED
        else:
            error = UpstreamFailed("the engine ended the stream before its end mark")
            self.error = error.message
            return self._error_event(error)
        return self._lines.rest

    def _error_event(self, error: PacelineError) -> bytes:
        document = self._render_error(error, self._dialect).body
        return (b"" if self._lines.is_between_events else b"\n\n") + self._event_of(document)

    def _event_of(self, document: bytes) -> bytes:
        return event_of(document, b"error" if self._dialect is Dialect.ANTHROPIC else None)


def _reported(kind: str) -> str:
    return f"the engine reported {kind}"


def _is_kept(pair: Header) -> bool:
    """What told of the stream is not for its sum."""
    return pair[0] not in (b"content-type", b"content-length", b"cache-control", b"x-accel-buffering")
