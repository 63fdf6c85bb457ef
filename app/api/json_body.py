"""A JSON body read with a bound, and judged by us: what is wrong with it comes out as one kind of error."""

import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from app.errors import BodyInvalid, BodyTooLarge

_BODY_MOST_BYTES = 1024 * 1024


async def read_json(request: Request, *content_types: str) -> Any:
    """The body as plain data. Raises BodyInvalid, BodyTooLarge.

    `application/json` is taken, and `content_types` besides. Nothing else is: a form on a foreign web page can send
    other types to a service on loopback without asking.
    """
    accepted = (*content_types, "application/json")
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise BodyInvalid(f"send the body with Content-Type: {accepted[0]}; got {given or 'none'!r}")
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > _BODY_MOST_BYTES:
                raise BodyTooLarge(f"the body is over {_BODY_MOST_BYTES} bytes", limit_bytes=_BODY_MOST_BYTES)
    except ClientDisconnect as gone:
        raise BodyInvalid("the client left before the body was whole") from gone
    try:
        return json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as failure:
        raise BodyInvalid(f"the body is not JSON: {failure}") from failure


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")
