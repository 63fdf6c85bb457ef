"""One request on its way through the relay: in, to the engine, back, and told of exactly once."""

import asyncio
import logging
from collections.abc import Callable

from app.errors import BodyTooLarge, PacelineError, ProfileNotRunning
from app.identifiers import id_text
from app.instances.lease import Lease
from app.proxy.asgi import WATCH_CLIENT, Header, Receive, Scope
from app.proxy.assembly.body import can_assemble, streaming_body
from app.proxy.caller import caller_of
from app.proxy.categories import category_of
from app.proxy.choosing import choose, wanted_by
from app.proxy.connection import Connection
from app.proxy.delivery import Delivery, RequestCancelled, StreamNotUnderstood, Unforeseen
from app.proxy.endpoints import COMPUTING, Endpoint, is_look
from app.proxy.headers import declared_bytes, header, request_head
from app.proxy.lease_wait import LeaseWait
from app.proxy.needs import ExchangeNeeds
from app.proxy.observer import Observation, Outcome
from app.proxy.profile_rules import as_profile_wants
from app.proxy.request import ClientGone, meaning_of, read_body
from app.proxy.request_body import RequestBody
from app.proxy.scrapes import EngineScraped, is_scrape
from app.proxy.upstream import Call

_log = logging.getLogger(__name__)


class Exchange:
    """Runs once. A stream that waits long for its profile is told so before the engine answers; a request for one
    answer is made as a stream where that gives the same.
    """

    __slots__ = (
        "_call",
        "_cancelled",
        "_delivery",
        "_endpoint",
        "_is_cut_reading",
        "_lease",
        "_needs",
        "_reading",
        "_receive",
        "_scope",
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
        delivery: Delivery,
    ) -> None:
        self.observation = observation
        self._needs = needs
        self._scope = scope
        self._receive = receive
        self._delivery = delivery
        self._target = b""
        self._endpoint = observation.endpoint
        self._call: Call | None = None
        self._lease: Lease | None = None
        self._waiting: LeaseWait | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_cut_reading = False
        self._cancelled = False

    def cancel(self) -> None:
        """End the request now; its client is told so."""
        self._cancelled = True
        self._give_up(_cancelled())

    def _give_up(self, reason: Exception) -> None:
        if self._call is not None:
            self._call.abort(reason)
        elif self._waiting is not None:
            self._waiting.cancel()
        elif self._reading is not None:
            self._is_cut_reading = True
            self._reading.cancel()

    async def run(self) -> None:
        """Serve the request. Whatever happens, the lease is given back and the request is told of once."""
        end_watch: Callable[[], object] | None = None
        delivery = self._delivery
        try:
            profile_id, body = await self._read()
            end_watch = self._watch_client()
            self._lease = await self._hold(profile_id)
            await self._ask(self._lease, body)
        except ClientGone:
            delivery.outcome = delivery.left_early()
        except PacelineError as error:
            await delivery.fail(error)
        except asyncio.CancelledError:
            if not self._is_cut_reading:
                delivery.outcome, delivery.error = Outcome.CANCELLED, "the service stopped"
                raise
            await delivery.fail(_cancelled())
        except Exception as error:
            _log.exception("unforeseen error on %s %s", self._scope["method"], self._scope["path"])
            await delivery.fail(Unforeseen("an error that was not foreseen; the service's log has it"))
            delivery.error = f"{type(error).__name__}: {error}"
        finally:
            # Nothing here may await: when the client has left, an await would be cancelled.
            if end_watch is not None:
                end_watch()
            self._end_call()
            if self._lease is not None:
                self._lease.release(has_failed=delivery.outcome is Outcome.UPSTREAM_FAILED)
            self._needs.publish(self.observation.finish(delivery.outcome, delivery.error, delivery.report))

    async def _read(self) -> tuple[str, RequestBody]:
        """The profile that is asked for, and the body."""
        observation, scope, needs = self.observation, self._scope, self._needs
        headers: list[Header] = scope["headers"]
        told = self._delivery.headers
        body = RequestBody(await self._receive_body(headers))
        names = needs.names()
        meant = meaning_of(scope, body, names)
        asked, self._target, observation.format = meant.asked, meant.target, meant.format
        self._endpoint = meant.endpoint
        observation.requested_model = asked.model
        observation.stream = asked.stream
        if meant.endpoint in COMPUTING:
            observation.category = category_of(headers, body)
        choice = choose(
            asked.model,
            names,
            caller_of(scope),
            needs.candidates,
            lambda: wanted_by(meant.endpoint, observation.category, body),
        )
        profile_id = observation.profile_id = choice.profile_id
        observation.route_reason = choice.reason
        told.append((b"x-paceline-profile", profile_id.encode()))
        if choice.is_auto:
            told.append((b"x-paceline-route", choice.detail.encode()))
        return profile_id, body

    async def _receive_body(self, headers: list[Header]) -> bytes:
        self._reading = asyncio.current_task()
        try:
            return await read_body(self._receive, declared_bytes(headers), self._needs.max_body_bytes)
        except BodyTooLarge:
            if header(headers, b"expect") is not None:
                # What it waits to be told to send must not be taken for its next request, should it never send it.
                self._delivery.headers.append((b"connection", b"close"))
            raise
        finally:
            self._reading = None

    async def _hold(self, profile_id: str) -> Lease:
        """A hold on the profile's instance; waits in its queue where it does not run, unless it is asked for a look."""
        looks = is_look(self._scope["method"], self._target)
        try:
            return self._needs.lease(profile_id, looks)
        except ProfileNotRunning:
            if looks:
                raise
        self._waiting = LeaseWait(self._needs.lease_when_ready(profile_id, caller_of(self._scope).name))
        signs = self._needs.sign_of_life_seconds if self.observation.stream else None
        lease = await self._waiting.lease(signs, self._delivery.give_sign_of_life)
        self._waiting = None
        if lease is None:
            raise _cancelled() if self._cancelled else ClientGone
        return lease

    async def _ask(self, lease: Lease, body: RequestBody) -> None:
        """Send the request, and see its answer to the client."""
        observation, delivery, upstream = self.observation, self._delivery, lease.upstream
        observation.instance_id, observation.context = upstream.instance_id, lease.context
        delivery.headers.append((b"x-paceline-instance", id_text(upstream.instance_id).encode()))
        if self._endpoint in COMPUTING:
            profile = self._needs.profile(lease.context.profile_id)
            body = as_profile_wants(profile, body, may_draft=upstream.may_draft)
        odd = self._needs.not_understood
        if not observation.stream and upstream.instance_id not in odd and can_assemble(self._endpoint, body):
            try:
                await delivery.put_together(await self._send(lease, streaming_body(body)), lease, self._endpoint)
                return
            except StreamNotUnderstood as riddle:
                # The client has got nothing yet; this engine is asked for no such stream again.
                _log.warning("profile %s: answers come in one piece from now on: %s", observation.profile_id, riddle)
                odd.add(upstream.instance_id)
                self._end_call()
        await delivery.pass_on(await self._send(lease, body.data), lease)

    async def _send(self, lease: Lease, data: bytes) -> Connection:
        """The engine's answer, from its first bytes on."""
        call, head = self._prepare(lease, len(data))
        answer = await call.start(head, data, head_only=self._scope["method"] == "HEAD")
        lease.answered()
        return answer

    def _end_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.close()

    def _prepare(self, lease: Lease, body_bytes: int) -> tuple[Call, bytes]:
        observation, scope, upstream = self.observation, self._scope, lease.upstream
        method = scope["method"]
        is_page = observation.endpoint is Endpoint.UPSTREAM and method != "POST"
        head = request_head(method, self._target, scope["headers"], upstream.api_key, body_bytes, is_page=is_page)
        if is_page and is_scrape(self._target):
            self._needs.publish(EngineScraped(lease.context.profile_id))
        self._call = self._needs.upstreams.call(upstream)
        if self._cancelled or self._delivery.client_gone:
            # It was given up in the very moment in which the hold was there.
            self._call.abort(_cancelled() if self._cancelled else ClientGone())
        observation.sent()
        return self._call, head

    def _watch_client(self) -> Callable[[], object]:
        """Notice when the client leaves; gives what ends the watch."""
        watch: Callable[[Callable[[], None]], Callable[[], None]] = self._scope[WATCH_CLIENT]
        return watch(self._client_left)

    def _client_left(self) -> None:
        self._delivery.client_gone = True
        self._give_up(ClientGone())


def _cancelled() -> RequestCancelled:
    return RequestCancelled("the request was cancelled")
