"""The server's side of HTTP/1.1: uvicorn's, with writes gathered, and forgiving one thing: an offer to go on in HTTP/2.

Java's client, among others, offers `Upgrade: h2c` with every request, and goes on in HTTP/1.1 where nobody takes it up.
The parser stops at the offer and loses the body, so the offer is taken out before it.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.cli.gathered_writes import GatheringTransport
from app.proxy.asgi import OF_CONTROL, WATCH_CLIENT

_OFFER = re.compile(rb"\r\n(?:upgrade:(?![ \t]*websocket)|http2-settings:)[^\r\n]*", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
# The parser keeps a head that has not ended, however long it gets. What came in one piece with its beginning is free.
_HEAD_MOST_BYTES = 64 * 1024
# Requests that a client may send ahead while one of its own is answered; more are not read before that.
_PIPELINED_MOST = 8


class HttpProtocol(HttpToolsProtocol):
    """What uvicorn runs, without upgrades; who asks for a WebSocket is told by the relay that there are none."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._watches: dict[Callable[[], None], RequestResponseCycle] = {}
        self._running: RequestResponseCycle | None = None
        self._head_bytes: int | None = None
        self._head_last = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(GatheringTransport(transport, self.loop))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        super().connection_lost(exc)
        # Of requests that were sent ahead it knows the last alone.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        for tell, cycle in list(self._watches.items()):
            cycle.disconnected = True
            tell()

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        super().on_message_begin()
        self._head_bytes, self._head_last = 0, b""

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._head_bytes = None
        super().on_headers_complete()
        if 0 < len(self.pipeline) <= _PIPELINED_MOST:
            # Where nothing is read, nobody sees that the client of the request before has left.
            self.flow.resume_reading()
        # It runs from the loop's next turn on, so it finds this.
        self.scope[WATCH_CLIENT] = partial(self._watch, self.cycle)  # type: ignore[literal-required]

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; an offer is looked for only where a request begins."""
        cycle: RequestResponseCycle | None = self.cycle
        if (cycle is None or cycle.response_complete) and b"pgrade:" in data:
            head, end, body = data.partition(_HEAD_END)
            data = _OFFER.sub(b"", head) + end + body
        if self._head_bytes is not None:
            # What follows the end is of the body; the end itself may be cut by two reads.
            ends_at = (self._head_last + data).find(_HEAD_END)
            self._head_bytes += len(data) if ends_at < 0 else ends_at
            self._head_last = data[-3:]
            if self._head_bytes > _HEAD_MOST_BYTES:
                self.send_400_response("The head of the request is too long.")
                return
        super().data_received(data)

    def waits_for_client(self) -> bool:
        """Whether a request of the control API is here whose client has to send or to take more.

        One that is still being worked on does not count, and nor does one that is relayed.
        """
        cycle = self._running
        if cycle is None or self._watches or not cycle.scope.get(OF_CONTROL):
            return False
        # Of requests that were sent ahead one may be done, and the next begin when its answer has been taken.
        if self.transport.get_write_buffer_size() > 0:
            return True
        return not cycle.response_complete and (cycle.more_body or cycle.response_started)

    def cut(self) -> str:
        """Close at once, so that an answer stays without its end; what was asked for, to be told."""
        self.transport.abort()
        return "nothing" if self._running is None else "{method} {path}".format_map(self._running.scope)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _watch(self, cycle: RequestResponseCycle, tell: Callable[[], None]) -> Callable[[], object]:
        if self.transport.is_closing():
            self.loop.call_soon(tell)
        self._watches[tell] = cycle
        # Of a long body the rest was not read until it was asked for, and nor would the end be.
        self.flow.resume_reading()
        return lambda: self._watches.pop(tell, None)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: it would tell the user to install what does not help."""
