"""What the relay must know of a request: its body, the model it names, whether it asks for a stream."""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from app.errors import BodyInvalid, BodyTooLarge, ModelNotNamed
from app.llama_server.answer_formats import OTHER, AnswerFormat
from app.proxy.asgi import Receive, Scope
from app.proxy.endpoints import ROUTES, UPSTREAM_PREFIX, Endpoint, Route
from app.proxy.headers import header
from app.proxy.passage import UpgradeRefused, passage_of
from app.proxy.request_body import RequestBody


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for; `model` is None where none is named."""

    model: str | None
    stream: bool


@dataclass(frozen=True, slots=True)
class Meant:
    """What a request means: what it asks, where in the engine it goes (`target`, with its query), what comes back.

    `endpoint` is the one that the engine sees: behind /upstream/ that of the path there.
    """

    asked: Asked
    target: bytes
    format: AnswerFormat
    endpoint: Endpoint


_model_decoder = msgspec.json.Decoder(str | None)
_stream_decoder = msgspec.json.Decoder(bool | None)


async def read_body(receive: Receive, declared_bytes: int | None, max_body_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge (before reading, where the length is declared), ClientGone."""
    if declared_bytes is not None and declared_bytes > max_body_bytes:
        raise _too_large(max_body_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > max_body_bytes:
            raise _too_large(max_body_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)


def meaning_of(scope: Scope, body: RequestBody, names: Collection[str]) -> Meant:
    """What a request on one of the relay's paths means. Raises BodyInvalid, ModelNotNamed, UpgradeRefused."""
    method, path, query = scope["method"], scope["path"], scope["query_string"]
    tail = b"?" + query if query else b""
    route = ROUTES.get((method, path))
    if route is not None:
        asked = parse_asked(body, query) if route.body_names_model else Asked(_model_of(query), False)
        if asked.stream and not route.format.may_stream:
            asked = Asked(asked.model, False)
        return Meant(asked, path.encode() + tail, route.format, route.endpoint)
    if (header(scope["headers"], b"upgrade") or b"").lower() == b"websocket":
        raise UpgradeRefused("llama-server speaks no WebSocket, so none is relayed: ask without Upgrade")
    passage = passage_of(scope.get("raw_path") or path.encode(), names)
    if not passage.name:
        raise ModelNotNamed(f"name a profile in the path: {UPSTREAM_PREFIX}{{profile}}/…")
    inner = ROUTES.get((method, passage.path.decode("latin-1")))
    if inner is None:
        return Meant(Asked(passage.name, False), passage.path + tail, OTHER, Endpoint.UPSTREAM)
    asked = Asked(passage.name, _asks_for_stream(inner, body))
    return Meant(asked, passage.path + tail, inner.format, inner.endpoint)


def parse_asked(body: RequestBody, query: bytes) -> Asked:
    """The model (of the body, else of `?model=`) and the stream flag. Raises BodyInvalid."""
    model = body.member("model", _model_decoder)
    return Asked(model or _model_of(query), body.member("stream", _stream_decoder) is True)


def _asks_for_stream(route: Route, body: RequestBody) -> bool:
    if not route.format.may_stream:
        return False
    try:
        return parse_asked(body, b"").stream
    except BodyInvalid:
        return False  # the engine will say what is wrong with it


def _model_of(query: bytes) -> str | None:
    if b"model" not in query:
        return None
    values = parse_qs(query.decode("utf-8", "replace")).get("model")
    return values[0] if values else None


def _too_large(max_body_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is over {max_body_bytes} bytes; send less, or raise max_body_bytes")
