"""The relay under uvicorn, as the service runs it, in front of one engine that runs already.

Run as `python -m bench.service PORT SOCKET`.
"""

import sys

import uvicorn

from app.errors import PacelineError
from app.events import Event
from app.identifiers import TimeOrderedIds
from app.instances.lease import LaunchContext, Lease, Upstream
from app.proxy.asgi import Answer
from app.proxy.relay import Relay
from app.proxy.upstream import Upstreams

_CONTEXT = LaunchContext("bench", 1, "bench", "0" * 16, "cpu", "none")


def make_relay(socket_path: str) -> Relay:
    """A relay with one profile, `bench`, whose engine listens on that socket."""
    upstream = Upstream(1, "bench-key", socket_path=socket_path)
    told: list[Event] = []

    def publish(event: Event) -> None:
        told.append(event)
        if len(told) > 1000:
            told.clear()

    def render_error(error: PacelineError) -> Answer:
        return Answer(502, [(b"content-type", b"text/plain")], error.message.encode())

    return Relay(
        names=lambda: {"bench": "bench"},
        lease=lambda _: Lease(upstream, _CONTEXT, lambda: None),
        models=list,
        publish=publish,
        render_error=render_error,
        upstreams=Upstreams(),
        ids=TimeOrderedIds(),
    )


if __name__ == "__main__":
    uvicorn.run(
        make_relay(sys.argv[2]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
