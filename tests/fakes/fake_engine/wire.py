"""HTTP/1.1 as far as the fake needs it: one request after another on a connection."""

import asyncio
import base64
import contextlib
import hashlib
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from .bodies import dumps


class ClientGone(Exception):
    """The client closed its side while its request was being worked on."""


class Cut(Exception):
    """The connection is to end now, without another byte."""


class Reader(asyncio.StreamReader):
    """Tells of the client's leaving at once, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=1 << 20)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


@dataclass
class Exchange:
    """One request, and what was answered so far (bodies without HTTP framing)."""

    connection: int
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    status: int | None = None
    sent: bytearray = field(default_factory=bytearray)

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name), None)

    def described(self) -> dict[str, Any]:
        return {
            "connection": self.connection,
            "method": self.method,
            "target": self.target,
            "headers": self.headers,
            "body_sha256": hashlib.sha256(self.body).hexdigest(),
        }

    def recorded(self) -> dict[str, Any]:
        return self.described() | {
            "body_base64": base64.b64encode(self.body).decode(),
            "status": self.status,
            "response_base64": base64.b64encode(self.sent).decode(),
        }


class Connection:
    """Reads exchanges and writes their answers, whole or as a chunked stream."""

    def __init__(self, number: int, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer
        self.exchange: Exchange | None = None

    @property
    def gone(self) -> asyncio.Event:
        return self.reader.gone

    async def next_exchange(self, timeout_seconds: float) -> Exchange | None:
        """None when the client is done, or was silent for too long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            return None
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = [(k, v.strip()) for k, _, v in (line.partition(":") for line in lines)]
        exchange = Exchange(self.number, method, target, headers, b"")
        if exchange.header("transfer-encoding"):
            exchange.body = await self._chunked_body()
        else:
            exchange.body = await self.reader.readexactly(int(exchange.header("content-length") or 0))
        self.exchange = exchange
        return exchange

    async def _chunked_body(self) -> bytes:
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")
        return body

    async def respond(self, status: int, body: bytes, content_type: str) -> None:
        assert self.exchange
        self._head(status, {"Content-Type": content_type, "Content-Length": str(len(body))})
        self.exchange.sent += body
        await self._write(body)

    async def respond_json(self, status: int, value: Any) -> None:
        text = value if isinstance(value, str) else dumps(value)
        await self.respond(status, text.encode(), "application/json; charset=utf-8")

    async def raw(self, data: bytes) -> None:
        """What the scenario says, HTTP or not; the connection stays."""
        assert self.exchange
        self.exchange.status = 200
        await self._write(data)

    async def start_stream(self) -> None:
        stream = {"X-Accel-Buffering": "no", "Content-Type": "text/event-stream"}
        self._head(200, stream | {"Transfer-Encoding": "chunked"})
        await self._write(b"")

    async def chunk(self, text: str) -> None:
        assert self.exchange
        body = text.encode()
        self.exchange.sent += body
        await self._write(b"%x\r\n%s\r\n" % (len(body), body))

    async def half_chunk(self, text: str) -> None:
        """A chunk that announces more than it carries; only closing can follow."""
        body = text.encode()
        await self._write(b"%x\r\n%s" % (len(body), body[: len(body) // 2]))
        raise Cut

    async def end_stream(self) -> None:
        await self._write(b"0\r\n\r\n")

    def _head(self, status: int, headers: dict[str, str]) -> None:
        assert self.exchange
        self.exchange.status = status
        # The engine's HTTP library closes the connection after every error.
        kept = {"Keep-Alive": "timeout=5, max=100"} if status < 400 else {"Connection": "close"}
        shown = {"Server": "llama.cpp", "Access-Control-Allow-Origin": ""} | headers | kept
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in shown.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def _write(self, data: bytes) -> None:
        if self.gone.is_set():
            raise ClientGone
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            raise ClientGone from None

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
