"""The load: a client of its own process, so that its CPU time is not the server's.

Run as `python -m bench.load PORT passed CONNECTIONS REQUESTS`, `… together CONNECTIONS REQUESTS CHUNKS INTERVAL_MS` or
`… stream STREAMS CHUNKS INTERVAL_MS`; prints one JSON line: `requests` sent, `units` counted (requests or chunks).

`passed` are requests for one answer that the service passes through, since they ask for log probabilities: if it put
them together they would get another content. `together` are such that it asks for as a stream of so many chunks.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import uvloop

from bench.answers import CONTENT, streamed
from bench.stream_order import StreamOrder
from bench.wire import chat, connected


async def _passed(port: int, connections: int, requests: int) -> dict[str, int]:
    return await _answers(port, connections, requests, chat(StreamOrder(64, 0), logprobs=True), CONTENT)


async def _together(port: int, connections: int, requests: int, chunks: int, interval_ms: int) -> dict[str, int]:
    return await _answers(port, connections, requests, chat(StreamOrder(chunks, interval_ms)), streamed(chunks))


async def _answers(port: int, connections: int, requests: int, request: bytes, content: bytes) -> dict[str, int]:
    async def one() -> None:
        client = await connected(port)
        for _ in range(requests // connections):
            await client.answer(request, content)
        client.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    sent = requests // connections * connections
    return {"requests": sent, "units": sent}


async def _streams(port: int, streams: int, chunks: int, interval_ms: int) -> dict[str, int]:
    request = chat(StreamOrder(chunks, interval_ms), stream=True)

    async def one(delay_seconds: float) -> None:
        await asyncio.sleep(delay_seconds)
        client = await connected(port)
        await client.first_byte(request)
        events = await client.rest()
        assert events >= chunks, events
        client.close()

    # Spread over one interval, as independent engines would be.
    await asyncio.gather(*(one(number * interval_ms / 1000 / streams) for number in range(streams)))
    return {"requests": streams, "units": streams * chunks}


_KINDS: Mapping[str, Callable[..., Coroutine[Any, Any, dict[str, int]]]] = {
    "passed": _passed,
    "together": _together,
    "stream": _streams,
}

if __name__ == "__main__":
    _port, _kind, *_numbers = sys.argv[1:]
    print(json.dumps(uvloop.run(_KINDS[_kind](int(_port), *map(int, _numbers)))))
