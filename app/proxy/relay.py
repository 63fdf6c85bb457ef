"""The relay: an ASGI callable that passes inference requests on to the engines."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from app.errors import AccessDenied, ModelUnknown, PacelineError
from app.events import Event
from app.identifiers import TimeOrderedIds, id_text
from app.instances.lease import Lease
from app.instances.state import InstanceState, InstanceStateChanged
from app.profiles.profile import LaunchProfile
from app.proxy.asgi import Answer, Receive, Scope, Send, send_answer
from app.proxy.auto import Candidate
from app.proxy.caller import caller_of
from app.proxy.delivery import Delivery
from app.proxy.endpoints import UPSTREAM_PREFIX, Dialect, Route, dialect_of, route_of
from app.proxy.exchange import Exchange
from app.proxy.headers import client_request_id
from app.proxy.model_list import shown_models
from app.proxy.needs import ExchangeNeeds
from app.proxy.observer import Observation, identify
from app.proxy.passage import page_redirect
from app.proxy.upstream import Upstreams

_MODELS = "/v1/models"
_ONE_MODEL = "/v1/models/"
_CLOSING = frozenset((InstanceState.STOPPING, InstanceState.STOPPED, InstanceState.FAILED))


class Relay:
    """Answers the inference endpoints; `takes` says which requests are its own. Their scopes have WATCH_CLIENT.

    `names` maps ids and aliases of profiles to ids, `profile` gives the profile of an id, `candidates` what `auto` must
    know of some, `lease` a hold on a running instance of one (for a look only, if so told) or raises ProfileNotRunning,
    `lease_when_ready` waits for one among those of a caller's name; a stream that has waited for `sign_of_life_seconds`
    gets comment lines from then on (None: it does not).
    `render_error` makes the answer of a named error, `models` lists what GET /v1/models shows.
    """

    def __init__(
        self,
        *,
        names: Callable[[], Mapping[str, str]],
        profile: Callable[[str], LaunchProfile],
        candidates: Callable[[Collection[str]], Sequence[Candidate]],
        lease: Callable[[str, bool], Lease],
        lease_when_ready: Callable[[str, str | None], Awaitable[Lease]],
        models: Callable[[], Sequence[Mapping[str, Any]]],
        publish: Callable[[Event], None],
        render_error: Callable[[PacelineError, Dialect], Answer],
        upstreams: Upstreams,
        ids: TimeOrderedIds,
        max_body_bytes: int = 100 * 1024 * 1024,
        sign_of_life_seconds: float | None = None,
    ) -> None:
        self._models = models
        self._upstreams = upstreams
        self._ids = ids
        self._needs = ExchangeNeeds(
            names,
            profile,
            candidates,
            lease,
            lease_when_ready,
            publish,
            render_error,
            upstreams,
            max_body_bytes,
            sign_of_life_seconds,
        )
        self._exchanges: dict[int, Exchange] = {}

    @staticmethod
    def takes(scope: Scope) -> bool:
        """Whether this request is one for the relay."""
        if scope["type"] != "http":
            return False
        method, path = scope["method"], scope["path"]
        return route_of(method, path) is not None or (method == "GET" and _is_of_models(path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that `takes` accepts."""
        request_id = self._ids.next()
        route = route_of(scope["method"], scope["path"])
        if route is None:
            await self._show_models(scope, send, request_id)
            return
        if scope["path"].startswith(UPSTREAM_PREFIX) and (page := _page_elsewhere(scope)):
            await send_answer(send, Answer(307, [(b"location", page)], b""))
            return
        observation, delivery = self._begin(scope, send, request_id, route, caller_of(scope).name)
        exchange = Exchange(self._needs, observation, scope, receive, delivery)
        self._exchanges[request_id] = exchange
        try:
            await exchange.run()
        finally:
            del self._exchanges[request_id]

    async def refuse(
        self, scope: Scope, send: Send, refusal: AccessDenied, leaves_row: Callable[[AccessDenied], bool]
    ) -> None:
        """Answer a request that `takes` accepts and that may not come in. It is told of where it may leave a row."""
        route = route_of(scope["method"], scope["path"])
        if route is None:
            await send_answer(send, self._needs.render_error(refusal, dialect_of(scope["path"])))
            return
        observation, delivery = self._begin(scope, send, self._ids.next(), route, refusal.details.get("key"))
        await delivery.fail(refusal)
        if leaves_row(refusal):
            self._needs.publish(observation.finish(delivery.outcome, delivery.error, None))

    def _begin(
        self, scope: Scope, send: Send, request_id: int, route: Route, client: str | None
    ) -> tuple[Observation, Delivery]:
        """What is gathered of a request, and what answers it under the id by which its client knows it."""
        observation = Observation(request_id, route.endpoint, route.format, client=client)
        dialect = dialect_of(scope["path"])
        delivery = Delivery(send, observation, self._needs.render_error, dialect)
        delivery.headers.extend(identify(observation, scope["headers"], dialect))
        return observation, delivery

    def active(self) -> Sequence[Observation]:
        """The requests in flight, oldest first; may be asked for on any thread."""
        return [exchange.observation for exchange in list(self._exchanges.values())]

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
            self._needs.not_understood.discard(event.instance_id)

    async def _show_models(self, scope: Scope, send: Send, request_id: int) -> None:
        """All models, or the one that the path names: everything after /v1/models/, slashes included."""
        shown_id = client_request_id(scope["headers"]) or id_text(request_id)
        headers = [(b"content-type", b"application/json"), (b"x-request-id", shown_id.encode())]
        path, models = scope["path"], shown_models(self._models(), caller_of(scope))
        if path == _MODELS:
            document: object = {"object": "list", "data": models}
        else:
            name = path.removeprefix(_ONE_MODEL)
            document = next((model for model in models if model["id"] == name), None)
            if document is None:
                unknown = ModelUnknown(f'no profile answers to "{name[:256]}"; GET {_MODELS} lists the names')
                await send_answer(send, self._needs.render_error(unknown, Dialect.OPENAI), headers[1:])
                return
        await send_answer(send, Answer(200, headers, msgspec.json.encode(document)))


def _is_of_models(path: str) -> bool:
    return path == _MODELS or path.startswith(_ONE_MODEL)


def _page_elsewhere(scope: Scope) -> bytes | None:
    """Where to look for the engine's page, should its address lack the last slash."""
    if scope["method"] not in ("GET", "HEAD"):
        return None
    page = page_redirect(scope.get("raw_path") or scope["path"].encode())
    return page and page + (b"?" + scope["query_string"] if scope["query_string"] else b"")
