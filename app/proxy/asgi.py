"""The few shapes of ASGI that the relay speaks, and the answers it gives itself."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

WATCH_CLIENT = "paceline.watch_client"
"""Where a scope has a function that calls another when the client leaves; our own server puts it there.

It takes that other one, and gives one that ends the watch. ASGI has a message for this, which only a task of its own
could wait for, at a tenth of what a request costs.
"""

OF_CONTROL = "paceline.of_control"
"""Set in the scope of a request that is not relayed: when the service ends it is not waited for while its client is."""


class AnswerCut(Exception):
    """An answer that has begun cannot be ended: the server closes the connection, and so the client sees it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case, `content-length` is added when it is sent."""

    status: int
    headers: Sequence[Header]
    body: bytes


async def send_answer(send: Send, answer: Answer, more_headers: Iterable[Header] = ()) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(answer.body)).encode())
    headers = [*answer.headers, *more_headers, length]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
