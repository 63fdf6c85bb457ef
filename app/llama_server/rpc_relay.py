"""A relay between an engine that will be killed and the RPC servers that it uses.

An RPC server that answers a client which is no longer there dies of it (SIGPIPE, build 11434), and takes its devices
with it. Behind the relay its client is always there: what it still answers is read, and then the connection ends.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 65536
_CONNECT_SECONDS = 5.0
# The server is still busy with the last thing the engine asked for.
_LAST_ANSWER_SECONDS = 2.0


@asynccontextmanager
async def relayed(flags: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
    """The flags with a relay in the place of each server of `--rpc`; the relays live as long as the context.

    Raises OSError where a server cannot be reached.
    """
    words = list(flags)
    endpoints = words[words.index("--rpc") + 1].split(",") if "--rpc" in words else []
    relays: list[_Relay] = []
    try:
        for endpoint in endpoints:
            relay = _Relay(endpoint)
            relays.append(relay)
            address = await relay.open()
            # Also where a tensor is put by the name of its buffer: `RPC0[host:port]`.
            words = [_readdressed(word, endpoint, address) for word in words]
        yield tuple(words)
    finally:
        for relay in relays:
            await relay.close()


def _readdressed(word: str, endpoint: str, address: str) -> str:
    parts = [address if part == endpoint else part for part in word.split(",")]
    return ",".join(parts).replace(f"[{endpoint}]", f"[{address}]")


class _Relay:
    """One RPC server, under an address of this machine."""

    def __init__(self, endpoint: str) -> None:
        self._host, _, port = endpoint.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listen; the address. Raises OSError where the server does not take a connection."""
        _, probe = await asyncio.wait_for(asyncio.open_connection(self._host, self._port), _CONNECT_SECONDS)
        probe.close()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def close(self) -> None:
        """Wait for last answers, then close every connection."""
        if self._server is not None:
            self._server.close()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=_LAST_ANSWER_SECONDS)
            for connection in late:
                connection.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        asking = asyncio.create_task(_pump(reader, to_server))
        try:
            await _pump(from_server, writer)
        finally:
            asking.cancel()
            to_server.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until the reader's side ends, and say so to the other; what nobody takes is read all the same."""
    is_taken = True
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            if is_taken:
                is_taken = await _send(writer, chunk)
    # uvloop raises RuntimeError where a closed connection is written to; asyncio's own loop takes it in silence.
    if not writer.is_closing():
        with suppress(OSError):
            writer.write_eof()


async def _send(writer: asyncio.StreamWriter, chunk: bytes) -> bool:
    if writer.is_closing():
        return False
    try:
        writer.write(chunk)
        await writer.drain()
    except OSError:
        return False
    return True
