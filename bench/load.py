"""The load: a client of its own process, so that its CPU time is not the server's.

Run as `python -m bench.load PORT unary CONNECTIONS REQUESTS` or `… PORT stream STREAMS CHUNKS INTERVAL_MS`; prints
one JSON line: `requests` sent, `units` counted (requests or chunks), latencies in microseconds.
"""

import asyncio
import json
import sys
import time

import uvloop

_PATH = b"/v1/chat/completions"


def _request(body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        _PATH,
        len(body),
        body,
    )


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
    await reader.readexactly(int(length))


async def _unary(port: int, connections: int, requests: int) -> dict[str, object]:
    request = _request(b'{"model":"bench","messages":[{"role":"user","content":"%b"}]}' % (b"word " * 40))
    latencies: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(requests // connections):
            begun = time.perf_counter()
            writer.write(request)
            await _answer(reader)
            latencies.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return {"requests": len(latencies), "units": len(latencies), **_latency(latencies)}


async def _streams(port: int, streams: int, chunks: int, interval_ms: int) -> dict[str, object]:
    request = _request(
        b'{"model":"bench","stream":true,"chunks":%d,"interval_ms":%d,"messages":[]}' % (chunks, interval_ms)
    )
    events = 0
    firsts: list[float] = []

    async def one(delay: float) -> None:
        nonlocal events
        await asyncio.sleep(delay)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        tail = await reader.readuntil(b"data: ")
        firsts.append(time.perf_counter() - begun)
        events += 1
        while b"[DONE]" not in tail:
            data = await reader.read(65536)
            assert data, "the stream was cut"
            events += (tail[-5:] + data).count(b"data: ")
            tail = tail[-5:] + data
        writer.close()

    # Spread over one interval, as independent engines would be.
    await asyncio.gather(*(one(number * interval_ms / 1000 / streams) for number in range(streams)))
    assert events >= streams * chunks, events
    return {"requests": streams, "units": streams * chunks, **_latency(firsts)}


def _latency(seconds: list[float]) -> dict[str, object]:
    ordered = sorted(seconds)
    return {
        "p50_us": round(ordered[len(ordered) // 2] * 1e6),
        "p99_us": round(ordered[len(ordered) * 99 // 100] * 1e6),
    }


if __name__ == "__main__":
    _port, _kind, *_numbers = sys.argv[1:]
    _measure = _unary if _kind == "unary" else _streams
    print(json.dumps(uvloop.run(_measure(int(_port), *map(int, _numbers)))))
