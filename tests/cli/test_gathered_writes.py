"""What goes out together, and what does not wait for company."""

import asyncio

from app.cli.gathered_writes import GatheringTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ends: list[str] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written.append(data)

    def is_closing(self) -> bool:
        return bool(self.ends)

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def get_write_buffer_size(self) -> int:
        return 7


def gathering() -> tuple[GatheringTransport, Wire]:
    wire = Wire()
    return GatheringTransport(wire, asyncio.get_running_loop()), wire


async def test_a_head_goes_out_with_what_follows_at_once() -> None:
    transport, wire = gathering()
    transport.write(HEAD)
    assert (wire.written, transport.get_write_buffer_size()) == ([], 7 + len(HEAD))
    transport.write(b"first")
    transport.write(b"second")
    assert wire.written == [HEAD + b"first", b"second"]
    await asyncio.sleep(0)
    assert wire.written == [HEAD + b"first", b"second"]


async def test_a_head_alone_waits_for_one_round_of_the_loop() -> None:
    transport, wire = gathering()
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert wire.written == [HEAD]
    transport.write(b"later")
    assert wire.written == [HEAD, b"later"]


async def test_two_heads_stay_in_order() -> None:
    """An interim answer and the answer."""
    transport, wire = gathering()
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert b"".join(wire.written) == b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD


async def test_what_is_held_goes_out_before_the_end() -> None:
    transport, wire = gathering()
    transport.write(HEAD)
    transport.close()
    assert (wire.written, wire.ends) == ([HEAD], ["close"])
    await asyncio.sleep(0)
    assert wire.written == [HEAD]


async def test_an_abort_throws_it_away() -> None:
    transport, wire = gathering()
    transport.write(HEAD)
    transport.abort()
    await asyncio.sleep(0)
    assert (wire.written, wire.ends) == ([], ["abort"])
