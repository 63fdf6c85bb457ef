"""The client that takes gaps between events, and the tokens that come through.

Run as `python -m bench.gaps PORT STREAMS REQUESTS CHUNKS INTERVAL_MS`: so many streams at a time, each that many
requests one after the other. Prints a JSON object: `requests`, `tokens`, the `seconds` they took, and `added_us`, for
each event by how much its distance to the one before grew between the engine's writing and here; `at_us` is when each
of those came.
"""

import asyncio
import itertools
import json
import re
import sys
import time

import uvloop

from bench.stream_order import StreamOrder
from bench.wire import Client, chat, connected, is_end

_STAMP = re.compile(rb'" ?@(\d+)"')


async def _take(port: int, streams: int, requests: int, chunks: int, interval_ms: int) -> dict[str, object]:
    request = chat(StreamOrder(chunks, interval_ms, is_stamped=True), stream=True)
    added_us: list[int] = []
    at_us: list[int] = []

    async def one(delay_seconds: float) -> None:
        await asyncio.sleep(delay_seconds)
        client = await connected(port)
        for _ in range(requests):
            await client.first_byte(request)
            came = await _came(client)
            assert len(came) == chunks, len(came)
            for (_, earlier_us), (now_us, later_us) in itertools.pairwise(came):
                added_us.append(later_us - earlier_us)
                at_us.append(now_us)
        client.close()

    begun = time.monotonic()
    await asyncio.gather(*(one(number * interval_ms / 1000 / streams) for number in range(streams)))
    seconds = time.monotonic() - begun
    sent = streams * requests
    return {"requests": sent, "tokens": sent * chunks, "seconds": seconds, "added_us": added_us, "at_us": at_us}


async def _came(client: Client) -> list[tuple[int, int]]:
    """When each event of a stream came, and how long it was on its way, which grows by what a gap grows by."""
    came: list[tuple[int, int]] = []
    rest = b""
    while not is_end(rest):
        rest += await client.read()
        now_us = time.monotonic_ns() // 1000
        end = 0
        for stamp in _STAMP.finditer(rest):
            came.append((now_us, now_us - int(stamp[1])))
            end = stamp.end()
        rest = rest[end:]
    return came


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_take(*map(int, sys.argv[1:])))))
