"""What the clients write and read: requests as bytes; answers and streams, of servers that behave."""

import asyncio
import json
import re
from dataclasses import dataclass

from bench.stream_order import StreamOrder

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
_PROMPT = "word " * 40
_BETWEEN_CHUNKS = re.compile(rb"\r\n[0-9a-fA-F]+\r\n")
_EVENT, _END = b"data: ", b"0\r\n\r\n"


def chat(order: StreamOrder | None = None, **members: object) -> bytes:
    """A chat request to the profile `bench`."""
    text = _PROMPT + order.text if order else _PROMPT
    document = {"model": "bench", "messages": [{"role": "user", "content": text}], **members}
    body = json.dumps(document, separators=(",", ":")).encode()
    return _HEAD + b"%d\r\n\r\n%b" % (len(body), body)


@dataclass(frozen=True)
class Client:
    """One connection, which stays. AssertionError wherever an answer is not what it should be."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self, request: bytes, content: bytes) -> None:
        """Ask, and read an answer in one piece that has that content."""
        self.writer.write(request)
        head = await self._head()
        length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
        body = await self.reader.readexactly(int(length))
        assert content in body, body

    async def first_byte(self, request: bytes) -> None:
        """Ask for a stream, and read until its first event has begun."""
        self.writer.write(request)
        await self._head()
        await self.reader.readuntil(_EVENT)

    async def rest(self) -> int:
        """Read the stream to its end; how many events it had, the first one included."""
        pieces, tail = [], b""
        while not is_end(tail):
            pieces.append(await self.read())
            tail = tail[-len(_END) :] + pieces[-1]
        # A proxy may cut anywhere, within the beginning of an event too.
        return 1 + _BETWEEN_CHUNKS.sub(b"", b"".join(pieces)).count(_EVENT)

    async def read(self) -> bytes:
        """What there is of the stream."""
        data = await self.reader.read(65536)
        assert data, "the stream was cut"
        return data

    def close(self) -> None:
        """Leave."""
        self.writer.close()

    async def _head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        return head


async def connected(port: int) -> Client:
    """A connection to that port of this machine."""
    return Client(*await asyncio.open_connection("127.0.0.1", port))


def is_end(data: bytes) -> bool:
    """Whether a stream ends with these bytes."""
    return data.endswith(_END)
