"""What the relay must know of a request: its body, the model it names, whether it asks for a stream."""

from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from app.errors import BodyInvalid, BodyTooLarge
from app.proxy.asgi import Receive


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for; `model` is None where none is named."""

    model: str | None
    stream: bool


class _Body(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None


_decoder = msgspec.json.Decoder(_Body)


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


def parse_asked(body: bytes, query: bytes) -> Asked:
    """The model (of the body, else of `?model=`) and the stream flag. Raises BodyInvalid."""
    try:
        asked = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BodyInvalid(f"the body is not what this endpoint takes: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyInvalid(f"the body is not a JSON object: {error}") from None
    return Asked(asked.model or _model_of(query), asked.stream is True)


def _model_of(query: bytes) -> str | None:
    if b"model" not in query:
        return None
    values = parse_qs(query.decode("utf-8", "replace")).get("model")
    return values[0] if values else None


def _too_large(max_body_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is over {max_body_bytes} bytes; send less, or raise max_body_bytes")
