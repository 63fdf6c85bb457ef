"""The cheapest engine there can be: answers unary requests at once, and streams events at a steady pace.

Run as `python -m bench.echo_engine SOCKET PORT`; it listens on both. The path
decides: `/v1/chat/completions` with `"stream":true` in the body streams, anything else gets one answer.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop

ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"' + b"word " * 60 + b'"}}],'
    b'"usage":{"prompt_tokens":28,"completion_tokens":64,"total_tokens":92},'
    b'"timings":{"cache_n":0,"prompt_n":28,"prompt_ms":131.823,"predicted_n":64,"predicted_ms":1321.907,'
    b'"draft_n":47,"draft_n_accepted":47}}'
)
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"finish_reason":null,"delta":{"content":" word"}}]}\n\n'
)
LAST = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":"stop",'
    b'"delta":{}}],"timings":{"cache_n":0,"prompt_n":28,"prompt_ms":131.823,"predicted_n":64,'
    b'"predicted_ms":1321.907}}\n\ndata: [DONE]\n\n'
)
_UNARY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PACE = re.compile(rb'"chunks": ?(\d+), ?"interval_ms": ?(\d+)')


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class EchoEngine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._streams: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_bytes = self._received.find(b"\r\n\r\n")
        if head_bytes < 0:
            return
        length = _LENGTH.search(self._received, 0, head_bytes + 2)
        end = head_bytes + 4 + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return
        body, self._received = self._received[head_bytes + 4 : end], self._received[end:]
        pace = _PACE.search(body)
        if pace is None:
            self._transport.write(_UNARY)
            return
        task = asyncio.get_running_loop().create_task(self._stream(int(pace[1]), int(pace[2]) / 1000))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _stream(self, chunks: int, interval_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._transport.write(_STREAM_HEAD + _chunked(EVENT))
        for number in range(1, chunks):
            await asyncio.sleep(begun + number * interval_seconds - loop.time())
            if self._transport.is_closing():
                return
            self._transport.write(_chunked(EVENT))
        self._transport.write(_chunked(LAST) + b"0\r\n\r\n")


async def _serve(socket_path: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    on_socket = await loop.create_unix_server(EchoEngine, socket_path)
    on_port = await loop.create_server(EchoEngine, "127.0.0.1", port)
    async with on_socket, on_port:
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
