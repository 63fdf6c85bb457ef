"""Which headers pass the relay, and which it adds. Pure."""

import re
from collections.abc import Sequence

from app.proxy.asgi import Header

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# Beside those of one hop: what the relay sets itself, the client's own secrets, and X-Conversation-Id, which makes
# the engine go on generating after the client has left. Without Accept-Encoding the answer can be observed; without
# Origin the engine does not decide which web pages may read it.
_NOT_TO_ENGINE = _HOP_BY_HOP | {
    b"accept-encoding",
    b"authorization",
    b"content-length",
    b"cookie",
    b"expect",
    b"host",
    b"origin",
    b"x-api-key",
    b"x-conversation-id",
    b"x-paceline-category",
}
# Of what the engine keeps compressed, its page and what belongs to it, there is nothing to observe.
_NOT_TO_ENGINE_PAGE = _NOT_TO_ENGINE - {b"accept-encoding"}
# Date and Server are added by our own server; the X- ones by the relay.
_NOT_TO_CLIENT = _HOP_BY_HOP | {
    b"date",
    b"server",
    b"x-paceline-instance",
    b"x-paceline-profile",
    b"x-request-id",
}
_STREAM_HEADERS: tuple[Header, ...] = (
    (b"x-accel-buffering", b"no"),
    (b"cache-control", b"no-cache"),
)
# Of a stream that begins before its engine answers.
EVENT_STREAM_HEADERS: tuple[Header, ...] = ((b"content-type", b"text/event-stream"), *_STREAM_HEADERS)
# The relay may add an event at the end of a stream, so no length is promised.
_NOT_OF_STREAM = frozenset((*(name for name, _ in _STREAM_HEADERS), b"content-length"))
_REQUEST_ID = re.compile(rb"[ -~]{1,128}")


def header(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first value of that header; names are in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


def request_head(
    method: str, target: bytes, headers: Sequence[Header], api_key: str, body_bytes: int, *, is_page: bool = False
) -> bytes:
    """Request line and headers for the engine, with the key of its launch, ready to be sent.

    `is_page` says that the engine's page may be meant, which it gives out compressed only.
    """
    withheld = _NOT_TO_ENGINE_PAGE if is_page else _NOT_TO_ENGINE
    named = _named_by_connection(headers)
    lines = [
        b"%b %b HTTP/1.1\r\nhost: engine\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n"
        % (method.encode("ascii"), target, api_key.encode("ascii"), body_bytes)
    ]
    for name, value in headers:
        if name not in withheld and name not in named:
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


def response_headers(headers: Sequence[Header], added: Sequence[Header], *, is_stream: bool) -> list[Header]:
    """The engine's headers without those of one hop, and the relay's, each of them once."""
    named = _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in _NOT_TO_CLIENT
        and name not in named
        and not (is_stream and name in _NOT_OF_STREAM)
        and not name.startswith(b"access-control-")
    ]
    kept.extend(added)
    if is_stream:
        kept.extend(_STREAM_HEADERS)
    return kept


def client_request_id(headers: Sequence[Header]) -> str | None:
    """The client's own X-Request-Id, where it is printable ASCII of at most 128 characters."""
    value = header(headers, b"x-request-id")
    if value is None or _REQUEST_ID.fullmatch(value) is None:
        return None
    return value.decode("ascii")


def declared_bytes(headers: Sequence[Header]) -> int | None:
    """The Content-Length of a request, where it is a number."""
    value = header(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() and len(value) < 19 else None


def is_event_stream(headers: Sequence[Header]) -> bool:
    """Whether the answer is a stream of server-sent events."""
    return (header(headers, b"content-type") or b"").lower().startswith(b"text/event-stream")


def _named_by_connection(headers: Sequence[Header]) -> frozenset[bytes]:
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value not in (b"keep-alive", b"close", b"Keep-Alive"):
            named |= {token.strip() for token in value.lower().split(b",")}
    return named
