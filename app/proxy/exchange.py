"""One request on its way through the relay: in, to the engine, back, and told of exactly once."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.errors import PacelineError, RequestError, UpstreamFailed
from app.events import Event
from app.identifiers import id_text
from app.instances.lease import Lease
from app.llama_server.timings import EngineReport
from app.proxy.asgi import Answer, Header, Receive, Scope, Send, send_answer
from app.proxy.connection import Connection
from app.proxy.headers import (
    client_request_id,
    declared_bytes,
    is_event_stream,
    request_head,
    response_headers,
)
from app.proxy.observer import Observation, Outcome
from app.proxy.request import ClientGone, parse_asked, read_body
from app.proxy.routing import choose_profile, route_reason
from app.proxy.upstream import Call, Upstreams


class RequestCancelled(RequestError):
    """Somebody with the right to do so cancelled the request."""

    code = "request-cancelled"


@dataclass(frozen=True, slots=True)
class ExchangeNeeds:
    """What every exchange is given by the relay; its constructor says what each of them is."""

    names: Callable[[], Mapping[str, str]]
    lease: Callable[[str], Lease]
    publish: Callable[[Event], None]
    render_error: Callable[[PacelineError], Answer]
    upstreams: Upstreams
    max_body_bytes: int


class Exchange:
    """Runs once. The status goes out only when the engine's first bytes are there, so what fails before is an error
    answer; what fails later ends an event stream with an error event, and cuts any other answer short.
    """

    __slots__ = (
        "_call",
        "_cancelled",
        "_client_gone",
        "_error",
        "_is_events",
        "_lease",
        "_needs",
        "_outcome",
        "_own_headers",
        "_receive",
        "_report",
        "_scope",
        "_send",
        "observation",
    )

    def __init__(
        self,
        needs: ExchangeNeeds,
        observation: Observation,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self.observation = observation
        self._needs = needs
        self._scope = scope
        self._receive = receive
        self._send = send
        self._call: Call | None = None
        self._lease: Lease | None = None
        self._own_headers: list[Header] = []
        self._is_events = False
        self._cancelled = False
        self._client_gone = False
        self._outcome = Outcome.UPSTREAM_FAILED
        self._error: str | None = None
        self._report: EngineReport | None = None

    def cancel(self) -> None:
        """End the request now; its client is told so."""
        self._cancelled = True
        if self._call is not None:
            self._call.abort(_cancelled())

    async def run(self) -> None:
        """Serve the request. Whatever happens, the lease is given back and the request is told of once."""
        watcher: asyncio.Task[None] | None = None
        try:
            call, head, body = await self._prepare()
            watcher = asyncio.create_task(self._watch_client(call))
            await self._pass_answer(await call.start(head, body))
        except ClientGone:
            self._outcome = self._left_early()
        except PacelineError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            self._outcome, self._error = Outcome.CANCELLED, "the service stopped"
            raise
        except OSError:
            # ASGI servers may say so when they are asked to send to a client that has left.
            self._outcome = self._left_early()
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"
            raise
        finally:
            # Nothing here may await: when the client has left, an await would be cancelled.
            if watcher is not None:
                watcher.cancel()
            if self._call is not None:
                self._call.close()
            if self._lease is not None:
                self._lease.release()
            self._needs.publish(self.observation.finish(self._outcome, self._error, self._report))

    def _left_early(self) -> Outcome:
        """A client that has read the end mark has all there is: what follows it is nothing."""
        has_all = self._is_events and self.observation.conclude().has_end_mark
        return Outcome.COMPLETED if has_all else Outcome.CLIENT_GONE

    async def _prepare(self) -> tuple[Call, bytes, bytes]:
        observation, scope, needs = self.observation, self._scope, self._needs
        headers: list[Header] = scope["headers"]
        observation.client_request_id = client_request_id(headers)
        shown_id = observation.client_request_id or id_text(observation.request_id)
        self._own_headers.append((b"x-request-id", shown_id.encode()))
        body = await read_body(self._receive, declared_bytes(headers), needs.max_body_bytes)
        query: bytes = scope["query_string"]
        asked = parse_asked(body, query)
        observation.requested_model = asked.model
        observation.stream = asked.stream
        profile_id = choose_profile(asked.model, needs.names())
        observation.profile_id = profile_id
        observation.route_reason = route_reason(asked.model, profile_id)
        self._own_headers.append((b"x-paceline-profile", profile_id.encode()))
        if self._cancelled:
            raise _cancelled()
        self._lease = needs.lease(profile_id)
        upstream = self._lease.upstream
        observation.instance_id = upstream.instance_id
        observation.context = self._lease.context
        shown_instance = id_text(upstream.instance_id).encode()
        self._own_headers.append((b"x-paceline-instance", shown_instance))
        target = scope["path"].encode() + (b"?" + query if query else b"")
        head = request_head(scope["method"], target, headers, upstream.api_key, len(body))
        self._call = needs.upstreams.call(upstream)
        observation.sent()
        return self._call, head, body

    async def _watch_client(self, call: Call) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._client_gone = True
        call.abort(ClientGone())

    async def _pass_answer(self, answer: Connection) -> None:
        observation, send = self.observation, self._send
        self._is_events = is_event_stream(answer.headers)
        observation.answered(is_events=self._is_events)
        headers = response_headers(answer.headers, self._own_headers, is_stream=self._is_events)
        chunk = await answer.read()
        observation.status_code = answer.status
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        while not answer.at_end:
            observation.chunk(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await answer.read()
        if chunk:
            observation.chunk(chunk)
        chunk += self._conclude(answer.status)
        await send({"type": "http.response.body", "body": chunk, "more_body": False})
        if self._client_gone:
            self._outcome = self._left_early()

    def _conclude(self, status: int) -> bytes:
        """Judge an answer that came to its end; returns the event to add where the end is none."""
        conclusion = self.observation.conclude()
        report = self._report = conclusion.report
        if status >= 400 or report.error is not None:
            self._outcome = Outcome.UPSTREAM_ERROR
            self._error = f"the engine reported {report.error}" if report.error else f"the engine answered {status}"
        elif conclusion.has_end_mark or report.finish_reason is not None:
            self._outcome = Outcome.COMPLETED
        else:
            error = UpstreamFailed("the engine ended the stream before its end mark")
            self._error = error.message
            return self._error_event(error, conclusion.ends_between_events)
        return b""

    async def _fail(self, error: PacelineError) -> None:
        """Tell the client of the error, as well as can be done by now."""
        self._error = error.message
        if isinstance(error, RequestCancelled):
            self._outcome = Outcome.CANCELLED
        elif not isinstance(error, UpstreamFailed):
            self._outcome = Outcome.REJECTED
        if self.observation.status_code is None:
            answer = self._needs.render_error(error)
            self.observation.status_code = answer.status
            await send_answer(self._send, answer, self._own_headers)
            return
        if not self._is_events:
            raise error
        conclusion = self.observation.conclude()
        self._report = conclusion.report
        event = b""
        if conclusion.has_end_mark:
            self._outcome, self._error = Outcome.COMPLETED, None
        else:
            event = self._error_event(error, conclusion.ends_between_events)
        await self._send({"type": "http.response.body", "body": event, "more_body": False})

    def _error_event(self, error: PacelineError, between_events: bool) -> bytes:
        envelope = self._needs.render_error(error).body.replace(b"\n", b"\ndata: ")
        return (b"" if between_events else b"\n\n") + b"data: " + envelope + b"\n\n"


def _cancelled() -> RequestCancelled:
    return RequestCancelled("the request was cancelled")
