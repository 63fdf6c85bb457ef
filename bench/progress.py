"""The client of many open streams.

Run as `python -m bench.progress PORT STREAMS SECONDS CHUNKS INTERVAL_MS`, it opens the streams, says `open` when each
has had its first event, then counts for so many seconds while all of them run, says `counted`, and leaves in their
midst. The last line is a JSON list: how many events came in each stream while they were counted.
"""

import asyncio
import json
import sys

import uvloop

from bench.stream_order import StreamOrder
from bench.wire import chat, connected, is_end

_OPENED_AT_ONCE = 32


async def _run(port: int, streams: int, seconds: int, chunks: int, interval_ms: int) -> list[int]:
    request = chat(StreamOrder(chunks, interval_ms), stream=True)
    seen = [0] * streams
    opening, all_open = asyncio.Semaphore(_OPENED_AT_ONCE), asyncio.Event()
    to_open = streams

    async def one(which: int) -> None:
        nonlocal to_open
        async with opening:
            client = await connected(port)
            await client.first_byte(request)
        to_open -= 1
        if not to_open:
            all_open.set()
        data = b""
        while not is_end(data):
            data = data[-5:] + await client.read()
            seen[which] += data.count(b"data: ")
        raise AssertionError("a stream was at its end before all were counted")

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(which)) for which in range(streams)]
        await all_open.wait()
        print("open", flush=True)
        before = list(seen)
        await asyncio.sleep(seconds)
        counted = [now - then for now, then in zip(seen, before, strict=True)]
        print("counted", flush=True)
        for each in running:
            each.cancel()
    return counted


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_run(*map(int, sys.argv[1:])))))
