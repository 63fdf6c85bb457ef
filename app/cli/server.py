"""The HTTP server: uvicorn, which waits for open answers when it stops; so those that never end are ended first."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

import uvicorn

from app.cli.http_protocol import HttpProtocol

# Who has not sent or taken what there is in so long holds up the end; it is looked at twice in that time.
_PATIENCE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ServiceServer(uvicorn.Server):
    """Calls `end_streams` when it begins to stop; after that it waits for requests in flight as ever.

    Those of the control API only while they are worked on: a file that is still being fetched, an answer that is not
    taken, a body that does not come are cut off after a moment.
    """

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in order."""
        self._end_streams()
        cutting = asyncio.create_task(self._cut_who_waits())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await cutting

    async def _cut_who_waits(self) -> None:
        before: set[HttpProtocol] = set()
        while True:
            await asyncio.sleep(_PATIENCE_SECONDS / 2)
            connections = self.server_state.connections
            waiting = {each for each in connections if isinstance(each, HttpProtocol) and each.waits_for_client()}
            late = waiting & before
            if late:
                told = ", ".join(sorted(each.cut() for each in late))
                _log.warning("the service ends: cut off while their clients sent or took the rest: %s", told)
            before = waiting
