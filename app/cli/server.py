"""The HTTP server: uvicorn, which waits for open answers when it stops; so those that never end are ended first."""

import socket
from collections.abc import Callable

import uvicorn


class ServiceServer(uvicorn.Server):
    """Calls `end_streams` when it begins to stop; after that it waits for requests in flight as ever."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in order."""
        self._end_streams()
        await super().shutdown(sockets)
