"""Server-sent events as an answer: frames out of a feed, signs of life, and an end when the client has gone."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.feed import Entry, Missed, Reader

T = TypeVar("T")

SILENCE_SECONDS = 15.0
_TAKING_SECONDS = 10.0
_BATCH_ENTRIES = 32
# A comment needs no blank line after it, and some clients take one for an event.
_SIGN_OF_LIFE = b":\n"
_LINE_END = re.compile(r"\r\n|\r|\n")

_log = logging.getLogger(__name__)

After = Annotated[int | None, Query(ge=0, description="resume after the event with this id")]
LastEventId = Annotated[
    int | None, Header(ge=0, alias="Last-Event-ID", description="the same, as browsers send it; it goes before `after`")
]


def frame(data: str | bytes, *, sequence: int | None = None, name: str | None = None) -> bytes:
    """One event. Data with line ends in it becomes several lines, which the client joins again."""
    text = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    lines = _LINE_END.split(text.decode()) if b"\n" in text or b"\r" in text else None
    head = b"" if name is None else b"event: %s\n" % name.encode()
    if sequence is not None:
        head += b"id: %d\n" % sequence
    if lines is not None:
        text = b"\ndata: ".join(line.encode() for line in lines)
    return b"%sdata: %s\n\n" % (head, text)


def missed_frame(missed: Missed) -> bytes:
    """The event that says that others are gone."""
    return frame(to_json({"missed": missed.count}), sequence=missed.sequence, name="missed")


async def frames(
    reader: Reader[T],
    show: Callable[[Entry[T]], bytes],
    *,
    show_missed: Callable[[Missed], bytes] = missed_frame,
    first: bytes = b"",
    silence_seconds: float = SILENCE_SECONDS,
) -> AsyncGenerator[bytes, None]:
    """What a stream sends: every entry as `show` has it (nothing where that is empty), and signs of life between."""
    loop = asyncio.get_running_loop()
    # At once: the client then knows that it is heard.
    yield _SIGN_OF_LIFE + first
    silent_until = loop.time() + silence_seconds
    while True:
        # Neither reading nor sending waits while there is more: who has much to catch up with lets others go between.
        await asyncio.sleep(0)
        chunk = _SIGN_OF_LIFE
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(silent_until):
                found = await _batch(reader)
            if not found:
                return
            chunk = b"".join(show_missed(item) if isinstance(item, Missed) else show(item) for item in found)
        if chunk:
            yield chunk
            silent_until = loop.time() + silence_seconds


async def _batch(reader: Reader[T]) -> Sequence[Entry[T] | Missed]:
    """The next entries, at least one; empty at the end. After the first nothing waits, so no entry can be lost."""
    async for found in reader:
        batch = [found]
        while len(batch) < _BATCH_ENTRIES and (more := reader.take()) is not None:
            batch.append(more)
        return batch
    return []


class EventStream(Response):
    """Sends frames until they end, the client goes, or takes nothing for `taking_seconds`."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes, None], *, taking_seconds: float = _TAKING_SECONDS) -> None:
        self._frames = content
        self._taking_seconds = taking_seconds
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            both = (sending, leaving)
            is_over = sending.done()
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        if is_over:
            sending.result()

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as chunks:
            try:
                await self._give(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for chunk in chunks:
                    await self._give(send, {"type": "http.response.body", "body": chunk, "more_body": True})
                await self._give(send, {"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                _log.info("a reader of events took nothing for %g s and is dropped", self._taking_seconds)

    async def _give(self, send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._taking_seconds):
            await send(message)


async def _left(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
