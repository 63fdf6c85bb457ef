"""One HTTP/1.1 connection to an engine.

A client of its own because this is the data path: a general client costs about as much per chunk as the whole
relay may (docs/decisions/0003-relay-client.md has the figures).
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from app.errors import UpstreamFailed
from app.proxy.asgi import Header

_MOST_HEADER_BYTES = 256 * 1024
_STATUSES = range(100, 600)
_WITHOUT_BODY = frozenset((204, 304))
_SMALL_BODY_BYTES = 64 * 1024
# A connection that was closed before a request is found to be within moments of its sending.
_STALE_SECONDS = 0.5


class Connection(asyncio.Protocol):
    """Carries one exchange at a time: `send`, `head`, `read` until it answers b"", then `release` or `abort`.

    At most about `buffer_bytes` of an answer wait here: over that the socket is not read until the reader comes.
    `on_lost` is called once, when the connection is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer_bytes: int,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self._loop = loop
        self._buffer_bytes = buffer_bytes
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self.lost = False
        self._ended_after = 0.0
        self.closed_by_engine = False
        self._head_only = False
        self._have_head = False
        self.last_heard = loop.time()
        self._begin(head_only=False)
        self._busy = False

    # The exchange, as its user sees it.

    def send(self, head: bytes, body: bytes, *, head_only: bool = False) -> None:
        """Begin an exchange; `head` is request line and headers, `head_only` says the method is HEAD."""
        self._begin(head_only=head_only)
        self.last_heard = self._loop.time()
        if self.lost or self._transport.is_closing():
            self.closed_by_engine = True
            self._ended_after = 0.0
            self._fail(UpstreamFailed("the engine closed the connection"))
        elif len(body) <= _SMALL_BODY_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def head(self) -> None:
        """Wait for status, headers and the first bytes of the body, or its end. Raises the failure."""
        while not (self._chunks or self.complete):
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def read(self) -> bytes:
        """The bytes that have come since, waiting for some; b"" after the last. Raises the failure."""
        chunks = self._chunks
        while not chunks:
            if self._failure is not None:
                raise self._failure
            if self.complete:
                return b""
            await self._wait()
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._buffered_bytes = 0
        if self._paused:
            self._resume()
        return data

    @property
    def at_end(self) -> bool:
        """Whether everything has come and been read."""
        return self.complete and not self._chunks

    @property
    def died_unanswered(self) -> bool:
        """Whether the engine closed the connection before it sent a byte of this answer, and as soon as it was asked:
        one that takes its time has begun to compute.
        """
        return self.closed_by_engine and not self._answered and self._ended_after <= _STALE_SECONDS

    def silent_seconds(self, now: float) -> float:
        """For how long the engine has sent nothing although it is its turn; 0 when it is not."""
        return now - self.last_heard if self._busy and not self._paused else 0.0

    def resting_seconds(self) -> float:
        """How long ago it was last sent to or heard of."""
        return self._loop.time() - self.last_heard

    def release(self) -> bool:
        """End the exchange; True when the connection can carry another, else it closes."""
        if self.at_end and self._reusable and not self.lost and not self._transport.is_closing():
            if self._paused:
                self._resume()
            return True
        self.abort(UpstreamFailed("the request was given up"))
        return False

    def abort(self, error: Exception) -> None:
        """Close at once, throwing away what is not read; the reader gets `error`."""
        self._chunks.clear()
        self.complete = False
        self._fail(error)

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse, and wake the reader once for all that came."""
        self.last_heard = self._loop.time()
        if not self._busy:
            # Nobody asked for these bytes, so where the next answer would begin is unknown.
            self._reusable = False
            self._transport.close()
            return
        self._answered = True
        before = self._buffered_bytes
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Of what a callback raised, the parser says only which one it was.
            self._fail(UpstreamFailed(f"the engine's answer is not HTTP: {error.__context__ or error}"))
            return
        if self._buffered_bytes != before:
            self._bare_bytes = 0
        elif not self.complete:
            # The parser gathers what has no end yet: a header, an extension of a chunk.
            self._bare_bytes += len(data)
            if self._bare_bytes > _MOST_HEADER_BYTES:
                self._fail(UpstreamFailed("the engine's answer is not HTTP: its headers have no end"))
                return
        if self._chunks or self.complete:
            self._wake()

    def eof_received(self) -> None:
        """The engine will send no more."""
        self._closed_by_engine()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, by whichever side."""
        self._closed_by_engine()
        self.lost = True
        self._on_lost(self)

    # What the parser tells.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, its name in lower case; a trailer is none, and by then the client may have had its headers."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise ValueError("its headers are too long")
        if self._have_head:
            return
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the status; an interim answer (1xx) is skipped."""
        if self.complete:
            self._reusable = False  # a second answer follows the first, and nobody asked for it
            return
        self.status = self._parser.get_status_code()
        if self.status not in _STATUSES:
            raise ValueError(f"{self.status} is no status")
        if self.status < 200:
            self.headers.clear()
            self._framed = False
            return
        self._have_head = True
        if self.status in _WITHOUT_BODY:
            # A length is that of another answer, and a server that is told of it would wait for the body.
            self.headers[:] = [pair for pair in self.headers if pair[0] != b"content-length"]
        if self._head_only:
            # The parser cannot know that no body follows, so its state is of no more use.
            self._complete(reusable=False)

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body; stop reading where too much waits."""
        if not self._busy:
            return
        self._chunks.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > self._buffer_bytes and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer has come to its end."""
        if self._have_head and self._busy:
            self._complete(reusable=self._parser.should_keep_alive())

    # Inside.

    def _begin(self, *, head_only: bool) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.complete = False
        self._busy = True
        self._reusable = False
        self._failure: Exception | None = None
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._header_bytes = 0
        self._bare_bytes = 0
        self._have_head = False
        self._framed = False
        self._answered = False
        self._head_only = head_only

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        self._paused = False
        self.last_heard = self._loop.time()
        if not self.lost and not self._transport.is_closing():
            self._transport.resume_reading()

    def _complete(self, *, reusable: bool) -> None:
        self.complete = True
        self._busy = False
        # An answer that overtook its request leaves the rest of the request in the buffer.
        self._reusable = reusable and self._transport.get_write_buffer_size() == 0
        self._wake()

    def _fail(self, error: Exception) -> None:
        self._busy = False
        if not self.complete and self._failure is None:
            self._failure = error
            self._wake()
        self._transport.abort()

    def _closed_by_engine(self) -> None:
        if not self._busy:
            self._reusable = False
        elif self._have_head and not self._framed:
            self._complete(reusable=False)
        else:
            self.closed_by_engine = True
            self._ended_after = self._loop.time() - self.last_heard
            where = "in the middle of its answer" if self._answered else "before it answered"
            self._fail(UpstreamFailed(f"the engine closed the connection {where}"))
