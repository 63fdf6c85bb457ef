"""The relay: an ASGI callable that passes inference requests on to the engines."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from app.errors import PacelineError
from app.events import Event
from app.identifiers import TimeOrderedIds, id_text
from app.instances.lease import Lease
from app.instances.state import InstanceState, InstanceStateChanged
from app.proxy.asgi import Answer, Receive, Scope, Send, send_answer
from app.proxy.exchange import Exchange, ExchangeNeeds
from app.proxy.headers import client_request_id
from app.proxy.observer import Endpoint, Observation
from app.proxy.upstream import Upstreams

_ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("POST", "/v1/chat/completions"): Endpoint.CHAT_COMPLETIONS,
    ("POST", "/v1/completions"): Endpoint.COMPLETIONS,
}
_MODELS = ("GET", "/v1/models")
_CLOSING = frozenset((InstanceState.STOPPING, InstanceState.STOPPED, InstanceState.FAILED))


class Relay:
    """Answers the inference endpoints; `takes` says which requests are its own.

    `names` maps ids and aliases of profiles to ids, `lease` gives a hold on a running instance of a profile or raises
    ProfileNotRunning, `lease_when_ready` waits for one; a stream that has waited for `sign_of_life_seconds` gets
    comment lines from then on (None: it does not). `render_error` makes the answer of a named error, `models` lists
    what GET /v1/models shows.
    """

    def __init__(
        self,
        *,
        names: Callable[[], Mapping[str, str]],
        lease: Callable[[str], Lease],
        lease_when_ready: Callable[[str], Awaitable[Lease]],
        models: Callable[[], Sequence[Mapping[str, Any]]],
        publish: Callable[[Event], None],
        render_error: Callable[[PacelineError], Answer],
        upstreams: Upstreams,
        ids: TimeOrderedIds,
        max_body_bytes: int = 64 * 1024 * 1024,
        sign_of_life_seconds: float | None = None,
    ) -> None:
        self._models = models
        self._upstreams = upstreams
        self._ids = ids
        self._needs = ExchangeNeeds(
            names, lease, lease_when_ready, publish, render_error, upstreams, max_body_bytes, sign_of_life_seconds
        )
        self._exchanges: dict[int, Exchange] = {}

    @staticmethod
    def takes(scope: Scope) -> bool:
        """Whether this request is one for the relay."""
        if scope["type"] != "http":
            return False
        key = (scope["method"], scope["path"])
        return key in _ENDPOINTS or key == _MODELS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that `takes` accepts; KeyError for any other."""
        key = (scope["method"], scope["path"])
        request_id = self._ids.next()
        if key == _MODELS:
            await self._list_models(scope, send, request_id)
            return
        observation = Observation(request_id, _ENDPOINTS[key])
        exchange = Exchange(self._needs, observation, scope, receive, send)
        self._exchanges[request_id] = exchange
        try:
            await exchange.run()
        finally:
            del self._exchanges[request_id]

    def active(self) -> Sequence[Observation]:
        """The requests in flight, oldest first."""
        return [exchange.observation for exchange in self._exchanges.values()]

    def cancel(self, request_id: int) -> bool:
        """Cancel a request in flight; False when there is none of that id."""
        exchange = self._exchanges.get(request_id)
        if exchange is None:
            return False
        exchange.cancel()
        return True

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """Close the connections of an instance that stops: it does not end before they do."""
        if event.state in _CLOSING:
            self._upstreams.close_instance(event.instance_id)

    async def _list_models(self, scope: Scope, send: Send, request_id: int) -> None:
        body = msgspec.json.encode({"object": "list", "data": list(self._models())})
        shown_id = client_request_id(scope["headers"]) or id_text(request_id)
        headers = [(b"content-type", b"application/json"), (b"x-request-id", shown_id.encode())]
        await send_answer(send, Answer(200, headers, body))
