"""The cheapest engine there can be: answers unary requests at once, and streams events at a steady pace.

Run as `python -m bench.echo_engine --host SOCKET [--port PORT]`, it listens on the Unix socket and on the port. To the
service it is a `llama-server`: it answers `--help`, `--version`, `--list-devices`, `/health` and `/slots`, takes every
flag and looks at none but the address. A POST whose body has `"chunks"` and `"interval_ms"` gets a stream, any
other gets one answer.
"""

import asyncio
import itertools
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
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
_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_UNARY = _JSON_HEAD % len(ANSWER) + ANSWER
_HEALTH = b'{"status":"ok"}'
_SLOTS = b'[{"id":0,"n_ctx":8192,"speculative":false}]'
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REPOSITORY = Path(__file__).resolve().parent.parent
_HELP = _REPOSITORY / "tests" / "fixtures" / "help_11434.txt"
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
        head, body, self._received = (
            self._received[:head_bytes],
            self._received[head_bytes + 4 : end],
            self._received[end:],
        )
        if head.startswith(b"GET "):
            answer = _SLOTS if head.startswith(b"GET /slots") else _HEALTH
            self._transport.write(_JSON_HEAD % len(answer) + answer)
            return
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


def write_program(path: Path) -> None:
    """Write an executable file that is this engine: what PACELINE_ENGINE can name."""
    python, repository = shlex.quote(sys.executable), shlex.quote(str(_REPOSITORY))
    path.write_text(f'#!/bin/sh\nPYTHONPATH={repository} exec {python} -m bench.echo_engine "$@"\n')
    path.chmod(0o700)


async def _serve(host: str, port: str | None) -> None:
    loop = asyncio.get_running_loop()
    on_socket = host.endswith(".sock")
    if on_socket:
        await loop.create_unix_server(EchoEngine, host)
    if port is not None:
        await loop.create_server(EchoEngine, "127.0.0.1" if on_socket else host, int(port))
    await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Answer a short question, or serve until a signal ends it."""
    if "--version" in arguments:
        print("version: 11434 (00bec40)")
    elif "--help" in arguments:
        # An engine without this flag is not asked for a dry run, and this one has nothing to measure.
        print(_HELP.read_text(encoding="utf-8").replace("--log-jsonl", "--log-other"))
    elif "--list-devices" in arguments:
        print("Available devices:")
    else:
        following = dict(itertools.pairwise(arguments))
        uvloop.run(_serve(following.get("--host", "127.0.0.1"), following.get("--port")))


if __name__ == "__main__":
    main(sys.argv[1:])
