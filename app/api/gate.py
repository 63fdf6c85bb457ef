"""The first thing a request meets: its key and origin, then whether it is for the relay or for the control API.

Plain ASGI: a relayed request must not pay for routing, validation and dependencies that it does not use.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.key import Key
from app.access.keys import Gatekeeper
from app.access.origins import OriginGuard
from app.access.refusals import Refusals
from app.api.problems import problem, problem_response, relay_answer
from app.errors import AccessDenied, BodyTooLarge, PacelineError
from app.proxy.asgi import OF_CONTROL, send_answer
from app.proxy.caller import Caller, with_caller
from app.proxy.endpoints import dialect_of, is_inference
from app.proxy.relay import Relay

# Profiles and machines are small; the relay has a bound of its own.
_CONTROL_BODY_MOST_BYTES = 4 * 1024 * 1024


class Gate:
    """ASGI callable: refuses without a key, hands inference requests to the relay, all else to `app`."""

    def __init__(
        self, app: ASGIApp, gatekeeper: Gatekeeper, guard: OriginGuard, refusals: Refusals, relay: Relay
    ) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._guard = guard
        self._refusals = refusals
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of any kind."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_relayed = self._relay.takes(scope)
        scope[OF_CONTROL] = not is_relayed
        try:
            key = self._admit(scope, is_relayed)
        except AccessDenied as refusal:
            client = scope.get("client")
            await asyncio.sleep(self._refusals.note(refusal, client[0] if client else ""))
            if is_relayed:
                await self._relay.refuse(scope, send, refusal, self._refusals.may_leave_row)
            else:
                await _refuse(refusal, scope, receive, send)
            return
        if is_relayed:
            if key is not None:
                with_caller(scope, Caller(key.name, key.profiles))
            await self._relay(scope, receive, send)
            return
        try:
            _demand_small_body(scope)
        except BodyTooLarge as refusal:
            await _refuse(refusal, scope, receive, send)
            return
        await self._app(scope, _bounded(receive), send)

    def _admit(self, scope: Scope, is_relayed: bool) -> Key | None:
        headers = scope["headers"]
        key = self._gatekeeper.admit(scope["path"], headers, is_inference=_is_inference(scope, is_relayed))
        server = scope.get("server")
        self._guard.admit(scope["method"], headers, server[0] if server else None, wakes=is_relayed)
        return key


def _is_inference(scope: Scope, is_relayed: bool) -> bool:
    """Whether a key for inference is enough: for what is relayed, save what changes an engine behind its profile."""
    path: str = scope["path"]
    return path.startswith("/v1/") or (is_relayed and is_inference(scope))


async def _refuse(refusal: PacelineError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"].startswith("/v1"):
        await send_answer(send, relay_answer(refusal, dialect_of(scope["path"])))
    else:
        await problem_response(*problem(refusal, scope["path"]))(scope, receive, send)


def _demand_small_body(scope: Scope) -> None:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if declared.isdigit() and int(declared) > _CONTROL_BODY_MOST_BYTES:
        raise _too_large()


def _bounded(receive: Receive) -> Receive:
    """The same messages, until the body is over the bound."""
    received_bytes = 0

    async def bounded() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > _CONTROL_BODY_MOST_BYTES:
            raise _too_large()
        return message

    return bounded


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"the body is over {_CONTROL_BODY_MOST_BYTES} bytes", limit_bytes=_CONTROL_BODY_MOST_BYTES)
