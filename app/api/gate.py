"""The first thing a request meets: its key, then whether it is for the relay or for the control API.

Plain ASGI: a relayed request must not pay for routing, validation and dependencies that it does not use.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.keys import Gatekeeper
from app.api.problems import openai_answer, problem, problem_response
from app.errors import AccessDenied
from app.proxy.asgi import send_answer
from app.proxy.relay import Relay


class Gate:
    """ASGI middleware: refuses without a key, hands inference requests to the relay, all else to `app`."""

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, relay: Relay) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of any kind."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        try:
            self._gatekeeper.admit(path, scope["headers"])
        except AccessDenied as denied:
            if path.startswith("/v1"):
                await send_answer(send, openai_answer(denied))
            else:
                await problem_response(*problem(denied, path))(scope, receive, send)
            return
        if self._relay.takes(scope):
            await self._relay(scope, receive, send)
        else:
            await self._app(scope, receive, send)
