"""One connection to the relay, whose every byte the test sends and reads when it likes."""

import asyncio
import json
from dataclasses import dataclass

from proxy.scripted_engine import DEADLINE_SECONDS


@dataclass
class Received:
    """The head of an answer; header names in lower case, each value in its order."""

    status: int
    headers: dict[str, list[str]]

    def one(self, name: str) -> str:
        """The value of a header that must come exactly once."""
        (value,) = self.headers[name]
        return value


@dataclass
class Answered:
    """All that came of one answer; `is_whole` says that its end was one."""

    head: Received
    body: bytes
    is_whole: bool

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def error(self) -> str:
        """The message of an error."""
        return str(json.loads(self.body)["error"]["message"])


class Client:
    """One connection to the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunked = False
        self._left = 0
        self.ended = False

    async def post(self, body: bytes, *, path: str = "/v1/chat/completions", headers: str = "") -> None:
        """Send a request; `headers` are whole lines."""
        head = f"POST {path} HTTP/1.1\r\nHost: relay\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        await self.send(head.encode() + body)

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Received:
        """Status and headers of the next answer."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
        line, *rows = head[:-4].decode("latin-1").split("\r\n")
        headers: dict[str, list[str]] = {}
        for row in rows:
            name, _, value = row.partition(": ")
            headers.setdefault(name.lower(), []).append(value)
        self._chunked = "transfer-encoding" in headers
        self._left = int(headers.get("content-length", ["0"])[0])
        self.ended = False
        return Received(int(line.split()[1]), headers)

    async def piece(self) -> bytes:
        """The next chunk; b"" at the end. Raises IncompleteReadError where the answer is cut."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            if not self._chunked:
                body, self._left = await self._reader.readexactly(self._left), 0
                self.ended = True
                return body
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
            self.ended = size == 0
            return data[:-2]

    async def rest(self) -> bytes:
        """The body to its end."""
        pieces = []
        while not self.ended:
            pieces.append(await self.piece())
        return b"".join(pieces)

    async def answer(self) -> Answered:
        """The next answer, whole or cut."""
        head, pieces = await self.head(), []
        try:
            while not self.ended:
                pieces.append(await self.piece())
        except asyncio.IncompleteReadError as cut:
            return Answered(head, b"".join((*pieces, cut.partial)), is_whole=False)
        return Answered(head, b"".join(pieces), is_whole=True)

    async def ask(self, body: bytes, *, path: str = "/v1/chat/completions") -> Answered:
        """Send a request and read its answer."""
        await self.post(body, path=path)
        return await self.answer()

    async def read_until_closed(self) -> bytes:
        """Whatever comes until the relay closes."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._reader.read()

    async def leave(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()
        await asyncio.sleep(0)
