"""One request on its way through the relay: in, to the engine, back, and told of exactly once."""

import asyncio

from app.errors import PacelineError, ProfileNotRunning, RequestError, UpstreamFailed
from app.identifiers import id_text
from app.instances.lease import Lease
from app.llama_server.timings import EngineReport
from app.proxy.asgi import Header, Receive, Scope, Send, send_answer
from app.proxy.caller import caller_of
from app.proxy.connection import Connection
from app.proxy.endpoints import Dialect, Endpoint, dialect_of
from app.proxy.headers import (
    EVENT_STREAM_HEADERS,
    client_request_id,
    declared_bytes,
    is_event_stream,
    request_head,
    response_headers,
)
from app.proxy.lease_wait import LeaseWait
from app.proxy.needs import ExchangeNeeds
from app.proxy.observer import Observation, Outcome
from app.proxy.request import ClientGone, meaning_of, read_body
from app.proxy.routing import choose_profile, route_reason
from app.proxy.sse import event_of
from app.proxy.upstream import Call

# A comment, with which an engine keeps a stream alive: it comes also where nothing is computed any more.
_PING = b":"


class RequestCancelled(RequestError):
    """Somebody with the right to do so cancelled the request."""

    code = "request-cancelled"


class Exchange:
    """Runs once. The status goes out only when the engine's first bytes are there, so what fails before is an error
    answer; what fails later ends an event stream with an error event, and cuts any other answer short. A stream that
    waits long for its profile gets its status and comment lines before that.
    """

    __slots__ = (
        "_call",
        "_cancelled",
        "_client_gone",
        "_dialect",
        "_error",
        "_has_begun",
        "_is_events",
        "_lease",
        "_needs",
        "_outcome",
        "_own_headers",
        "_receive",
        "_report",
        "_scope",
        "_send",
        "_target",
        "_waiting",
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
        self._dialect = dialect_of(scope["path"])
        self._target = b""
        self._call: Call | None = None
        self._lease: Lease | None = None
        self._own_headers: list[Header] = []
        self._waiting: LeaseWait | None = None
        self._has_begun = False
        self._is_events = False
        self._cancelled = False
        self._client_gone = False
        self._outcome = Outcome.UPSTREAM_FAILED
        self._error: str | None = None
        self._report: EngineReport | None = None

    def cancel(self) -> None:
        """End the request now; its client is told so."""
        self._cancelled = True
        self._give_up(_cancelled())

    def _give_up(self, reason: Exception) -> None:
        if self._call is not None:
            self._call.abort(reason)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def run(self) -> None:
        """Serve the request. Whatever happens, the lease is given back and the request is told of once."""
        watcher: asyncio.Task[None] | None = None
        try:
            profile_id, body = await self._read()
            watcher = asyncio.create_task(self._watch_client())
            self._lease = await self._hold(profile_id)
            call, head = self._prepare(self._lease, len(body))
            answer = await call.start(head, body, head_only=self._scope["method"] == "HEAD")
            self._lease.answered()
            await self._pass_answer(answer, self._lease)
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
                self._lease.release(has_failed=self._outcome is Outcome.UPSTREAM_FAILED)
            self._needs.publish(self.observation.finish(self._outcome, self._error, self._report))

    def _left_early(self) -> Outcome:
        """A client that has read the end mark has all there is: what follows it is nothing."""
        has_all = self._is_events and self.observation.conclude().has_end_mark
        return Outcome.COMPLETED if has_all else Outcome.CLIENT_GONE

    async def _read(self) -> tuple[str, bytes]:
        """The profile that is asked for, and the body."""
        observation, scope, needs = self.observation, self._scope, self._needs
        headers: list[Header] = scope["headers"]
        observation.client_request_id = client_request_id(headers)
        shown_id = observation.client_request_id or id_text(observation.request_id)
        self._own_headers.append((b"x-request-id", shown_id.encode()))
        body = await read_body(self._receive, declared_bytes(headers), needs.max_body_bytes)
        names = needs.names()
        meant = meaning_of(scope, body, names)
        asked, self._target, observation.format = meant.asked, meant.target, meant.format
        observation.requested_model = asked.model
        observation.stream = asked.stream
        profile_id = choose_profile(asked.model, names, caller_of(scope))
        observation.profile_id = profile_id
        observation.route_reason = route_reason(asked.model, profile_id)
        self._own_headers.append((b"x-paceline-profile", profile_id.encode()))
        if self._cancelled:
            raise _cancelled()
        return profile_id, body

    async def _hold(self, profile_id: str) -> Lease:
        """A hold on the profile's instance; waits in its queue where it does not run."""
        try:
            return self._needs.lease(profile_id)
        except ProfileNotRunning:
            pass
        self._waiting = LeaseWait(self._needs.lease_when_ready(profile_id))
        signs = self._needs.sign_of_life_seconds if self.observation.stream else None
        lease = await self._waiting.lease(signs, self._give_sign_of_life)
        self._waiting = None
        if lease is None:
            raise _cancelled() if self._cancelled else ClientGone
        return lease

    async def _give_sign_of_life(self) -> None:
        """A comment: clients pass over it, and neither they nor proxies between give up meanwhile."""
        if not self._has_begun:
            self._has_begun = self._is_events = True
            self.observation.answered(is_events=True)
            headers = [*EVENT_STREAM_HEADERS, *self._own_headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": b": waiting\n\n", "more_body": True})

    def _prepare(self, lease: Lease, body_bytes: int) -> tuple[Call, bytes]:
        observation, scope = self.observation, self._scope
        upstream = lease.upstream
        observation.instance_id = upstream.instance_id
        observation.context = lease.context
        self._own_headers.append((b"x-paceline-instance", id_text(upstream.instance_id).encode()))
        method = scope["method"]
        is_page = observation.endpoint is Endpoint.UPSTREAM and method != "POST"
        head = request_head(method, self._target, scope["headers"], upstream.api_key, body_bytes, is_page=is_page)
        self._call = self._needs.upstreams.call(upstream)
        if self._cancelled or self._client_gone:
            self._call.abort(_cancelled() if self._cancelled else ClientGone())
        observation.sent()
        return self._call, head

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._client_gone = True
        self._give_up(ClientGone())

    async def _pass_answer(self, answer: Connection, lease: Lease) -> None:
        observation, send = self.observation, self._send
        is_events = is_event_stream(answer.headers)
        observation.answered(is_events=is_events)
        chunk = await answer.read()
        observation.status_code = answer.status
        if self._has_begun and not is_events:
            await self._pass_as_event(answer, chunk)
            return
        self._is_events = is_events
        if not self._has_begun:
            headers = response_headers(answer.headers, self._own_headers, is_stream=is_events)
            self._has_begun = True
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        while not answer.at_end:
            observation.chunk(chunk)
            if not chunk.startswith(_PING):
                lease.came_on()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await answer.read()
        if chunk:
            observation.chunk(chunk)
        chunk += self._conclude(answer.status)
        await send({"type": "http.response.body", "body": chunk, "more_body": False})
        if self._client_gone:
            self._outcome = self._left_early()

    async def _pass_as_event(self, answer: Connection, chunk: bytes) -> None:
        """An answer in one piece, an error as a rule, to a client that has been promised events."""
        observation = self.observation
        whole = chunk
        observation.chunk(chunk)
        while not answer.at_end:
            chunk = await answer.read()
            observation.chunk(chunk)
            whole += chunk
        self._conclude(answer.status)
        await self._send({"type": "http.response.body", "body": self._event_of(whole), "more_body": False})

    def _conclude(self, status: int) -> bytes:
        """Judge an answer that came to its end; returns the event to add where the end is none."""
        conclusion = self.observation.conclude()
        report = self._report = conclusion.report
        if status >= 400 or report.error is not None:
            self._outcome = Outcome.UPSTREAM_ERROR
            self._error = f"the engine reported {report.error}" if report.error else f"the engine answered {status}"
        elif conclusion.is_complete:
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
        answer = self._needs.render_error(error, self._dialect)
        if self.observation.status_code is None:
            # Told as it is also where the client was promised events before.
            self.observation.status_code = answer.status
        if not self._has_begun:
            self._has_begun = True
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
        document = self._needs.render_error(error, self._dialect).body
        return (b"" if between_events else b"\n\n") + self._event_of(document)

    def _event_of(self, document: bytes) -> bytes:
        return event_of(document, b"error" if self._dialect is Dialect.ANTHROPIC else None)


def _cancelled() -> RequestCancelled:
    return RequestCancelled("the request was cancelled")
