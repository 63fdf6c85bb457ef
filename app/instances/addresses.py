"""Where instances listen: private Unix sockets, or loopback ports where those cannot be."""

import os
import socket
from pathlib import Path

from app.identifiers import id_text
from app.llama_server.flags import ListenAddress

# A Unix socket's path, its final zero included, has 108 bytes.
_SOCKET_PATH_BYTES = 107


class Addresses:
    """`runtime_dir` is short and private; `transport` is `auto`, `unix` or `tcp`."""

    def __init__(self, runtime_dir: Path, transport: str) -> None:
        self._runtime_dir = runtime_dir
        self._transport = transport

    def address(self, identifier: int) -> ListenAddress:
        """A fresh address for one life."""
        path = str(self._socket_path(identifier))
        if self._transport != "tcp" and len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
            return ListenAddress(socket_path=path)
        return ListenAddress(port=_free_port())

    def release(self, identifier: int) -> None:
        """The life is over: the engine leaves its socket behind."""
        self._socket_path(identifier).unlink(missing_ok=True)

    def _socket_path(self, identifier: int) -> Path:
        return self._runtime_dir / f"{id_text(identifier)}.sock"


def _free_port() -> int:
    """A loopback port that is free now; should another program take it first, the engine says so and exits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
