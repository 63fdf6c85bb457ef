"""The head of an answer and the beginning of its body in one packet.

The server writes a head as soon as it is known. Nearly always the body follows at once, and then the second write costs
as much as the first: a call of the kernel, a packet, and a client that is woken twice.
"""

import asyncio
from typing import Any

_HEAD_BEGIN = b"HTTP/1.1 "
_HEAD_END = b"\r\n\r\n"


class GatheringTransport(asyncio.Transport):
    """A transport that holds a head back until more is written, or the event loop has gone round once.

    What looks like a head and is none is only held back as shortly. All else is passed on as it is.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self._flushing: asyncio.Handle | None = None

    def write(self, data: Any) -> None:
        """Send these bytes, after what is held back."""
        held = self._held
        if held is not None:
            self._held = None
            if self._flushing is not None:
                self._flushing.cancel()
                self._flushing = None
            self._transport.write(held + data)
        elif data.startswith(_HEAD_BEGIN) and data.endswith(_HEAD_END):
            self._held = data
            self._flushing = self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close when everything is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._held = None
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take nothing more from the client for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take more again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._transport.set_protocol(protocol)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._transport.get_write_buffer_size() + len(self._held or b"")

    def _flush(self) -> None:
        held, self._held, self._flushing = self._held, None, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)
