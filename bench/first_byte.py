"""The client that takes the time to the first byte of a stream, at several servers by turns.

Run as `python -m bench.first_byte TURNS PORT …`, it has one connection to each port, and at every turn asks one after
the other. Prints a JSON object: `requests` sent to each, and `taken_us`, a list for each port of the microseconds from
the request to the first event, turn by turn.
"""

import json
import sys
import time

import uvloop

from bench.stream_order import StreamOrder
from bench.wire import chat, connected

_WARM_UP_TURNS = 20


async def _take(turns: int, ports: list[int]) -> dict[str, object]:
    request = chat(StreamOrder(8, 0), stream=True)
    clients = [await connected(port) for port in ports]
    taken_us: list[list[float]] = [[] for _ in ports]
    for turn in range(_WARM_UP_TURNS + turns):
        # In turning order, so that none is always the one after a certain other.
        for number in range(len(ports)):
            which = (turn + number) % len(ports)
            begun = time.perf_counter()
            await clients[which].first_byte(request)
            if turn >= _WARM_UP_TURNS:
                taken_us[which].append(round((time.perf_counter() - begun) * 1e6, 1))
            await clients[which].rest()
    for client in clients:
        client.close()
    return {"requests": _WARM_UP_TURNS + turns, "taken_us": taken_us}


if __name__ == "__main__":
    _turns, *_ports = map(int, sys.argv[1:])
    print(json.dumps(uvloop.run(_take(_turns, _ports))))
