"""The first thing a request meets: its key and origin, then whether it is for the relay or for the control API.

Plain ASGI: a relayed request must not pay for routing, validation and dependencies that it does not use.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.keys import Gatekeeper
from app.access.origins import OriginGuard
from app.api.problems import openai_answer, problem, problem_response
from app.errors import AccessDenied, BodyTooLarge, PacelineError
from app.proxy.asgi import send_answer
from app.proxy.relay import Relay

# Profiles and machines are small; the relay has a bound of its own.
_CONTROL_BODY_MOST_BYTES = 4 * 1024 * 1024


class Gate:
    """ASGI middleware: refuses without a key, hands inference requests to the relay, all else to `app`."""

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, guard: OriginGuard, relay: Relay) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._guard = guard
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of any kind."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        try:
            self._gatekeeper.admit(path, scope["headers"])
            server = scope.get("server")
            self._guard.admit(scope["method"], scope["headers"], server[0] if server else None)
            if self._relay.takes(scope):
                await self._relay(scope, receive, send)
                return
            _demand_small_body(scope)
        except (AccessDenied, BodyTooLarge) as refusal:
            await _refuse(refusal, scope, receive, send)
            return
        await self._app(scope, _bounded(receive), send)


async def _refuse(refusal: PacelineError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"].startswith("/v1"):
        await send_answer(send, openai_answer(refusal))
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
