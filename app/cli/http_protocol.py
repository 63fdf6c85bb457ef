"""The server's side of HTTP/1.1: uvicorn's, with writes gathered, and forgiving one thing: an offer to go on in HTTP/2.

Java's client, among others, offers `Upgrade: h2c` with every request, and goes on in HTTP/1.1 where nobody takes it up.
The parser stops at the offer and loses the body, so the offer is taken out before it.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.cli.gathered_writes import GatheringTransport
from app.proxy.asgi import WATCH_CLIENT

_OFFER = re.compile(rb"\r\n(?:upgrade:(?![ \t]*websocket)|http2-settings:)[^\r\n]*", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
# The parser keeps a head that has not ended, however long it gets. What came in one piece with its beginning is free.
_HEAD_MOST_BYTES = 64 * 1024


class HttpProtocol(HttpToolsProtocol):
    """What uvicorn runs, without upgrades; who asks for a WebSocket is told by the relay that there are none."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._watches: set[Callable[[], None]] = set()
        self._head_bytes: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(GatheringTransport(transport, self.loop))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        super().connection_lost(exc)
        for tell in list(self._watches):
            tell()

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._head_bytes = None
        super().on_headers_complete()
        # It runs from the loop's next turn on, so it finds this.
        self.scope[WATCH_CLIENT] = self._watch  # type: ignore[literal-required]

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; an offer is looked for only where a request begins."""
        cycle: RequestResponseCycle | None = self.cycle
        if (cycle is None or cycle.response_complete) and b"pgrade:" in data:
            head, end, body = data.partition(_HEAD_END)
            data = _OFFER.sub(b"", head) + end + body
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_MOST_BYTES:
                self.send_400_response("The head of the request is too long.")
                return
        super().data_received(data)

    def _watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        if self.transport.is_closing():
            self.loop.call_soon(tell)
        self._watches.add(tell)
        # Of a long body the rest was not read until it was asked for, and nor would the end be.
        self.flow.resume_reading()
        return lambda: self._watches.discard(tell)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: it would tell the user to install what does not help."""
