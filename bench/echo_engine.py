"""The cheapest engine there can be: answers unary requests at once, and streams events as they are ordered.

Run as `python -m bench.echo_engine --host SOCKET [--port PORT]`, it listens on the Unix socket and on the port. To the
service it is a `llama-server`: it answers `--help`, `--version`, `--list-devices`, `/health` and `/slots`, takes every
flag and looks at none but the address. A POST gets the stream that `stream_order.py` finds in its body, or one answer.
"""

import asyncio
import itertools
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import uvloop

from bench.answers import ANSWER, FIRST, WORDS, event, last_events
from bench.stream_order import StreamOrder, order_of

_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_UNARY = _JSON_HEAD % len(ANSWER) + ANSWER
_HEALTH = b'{"status":"ok"}'
_SLOTS = b'[{"id":0,"n_ctx":8192,"speculative":false}]'
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REPOSITORY = Path(__file__).resolve().parent.parent
_HELP = _REPOSITORY / "tests" / "fixtures" / "help_11434.txt"
# A thousand streams may begin in the same moment.
_BACKLOG = 4096


class EchoEngine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._streams: set[asyncio.Task[None]] = set()
        self._may_write = asyncio.Event()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._may_write.set()

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
        order = order_of(body)
        if order is None:
            self._transport.write(_UNARY)
            return
        task = asyncio.get_running_loop().create_task(self._stream(order))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _stream(self, order: StreamOrder) -> None:
        loop = asyncio.get_running_loop()
        begun, interval_seconds = loop.time(), order.interval_ms / 1000
        chunks = _chunks(order)
        self._transport.write(_STREAM_HEAD + _chunked(FIRST) + next(chunks))
        for number in range(1, order.chunks):
            # Without an interval this only lets the loop write what there is: each event is a write of its own.
            await asyncio.sleep(begun + number * interval_seconds - loop.time())
            await self._may_write.wait()
            if self._transport.is_closing():
                return
            self._transport.write(next(chunks))
        self._transport.write(_chunked(last_events(with_usage=order.with_usage)) + b"0\r\n\r\n")


def _chunks(order: StreamOrder) -> Iterator[bytes]:
    """Endless; each is made when it is taken."""
    if not order.is_stamped:
        return itertools.cycle([_chunked(event(word, with_timings=order.with_timings)) for word in WORDS])
    return (
        _chunked(event(b" @%d" % (time.monotonic_ns() // 1000), with_timings=order.with_timings))
        for _ in itertools.count()
    )


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def write_program(path: Path) -> None:
    """Write an executable file that is this engine: what PACELINE_ENGINE can name."""
    python, repository = shlex.quote(sys.executable), shlex.quote(str(_REPOSITORY))
    path.write_text(f'#!/bin/sh\nPYTHONPATH={repository} exec {python} -m bench.echo_engine "$@"\n')
    path.chmod(0o700)


async def _serve(host: str, port: str | None) -> None:
    loop = asyncio.get_running_loop()
    on_socket = host.endswith(".sock")
    # A server that nobody refers to may be collected, and listens no more.
    servers = []
    if on_socket:
        servers.append(await loop.create_unix_server(EchoEngine, host, backlog=_BACKLOG))
    if port is not None:
        address = "127.0.0.1" if on_socket else host
        servers.append(await loop.create_server(EchoEngine, address, int(port), backlog=_BACKLOG))
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
