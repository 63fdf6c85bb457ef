"""The events of a stream, however it is cut."""

import time

import pytest
from hypothesis import example, given
from proxy.event_reading import chunked_streams, cut, data_of

from app.proxy.assembly.split import EventSplitter

STREAM = (
    "\ufeff: hello\r\n\r\ndata: {\"a\":\"é→😀\"}\n\ndata: two\rdata: lines\r\rdata\n\n:\n\n"
    "data:\ndata: \ndata:  x\r\n\r\n"
    "event: x\nid: 1\ndatum: no\ndata:y\n:within\nretry: 3\n\ndata: [DONE]\n\n:\n\ndata: half"
).encode()  # fmt: skip


def fed(chunks: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@given(chunked_streams)
@example([STREAM])
@example([b"data: x\r", b"", b"\n\r", b"\n"])
@example([b"\xef", b"\xbb\xbf", b"data: x\n\n"])
def test_any_chunks_of_any_stream_give_the_events_of_the_standard(chunks: list[bytes]) -> None:
    assert fed(chunks) == data_of(b"".join(chunks))


def test_the_plain_reading_is_right() -> None:
    assert data_of(STREAM) == [
        '{"a":"é→😀"}'.encode(), b"two\nlines", b"", b"\n\n x", b"y", b"[DONE]",
    ]  # fmt: skip


def test_a_stream_may_be_cut_at_any_byte() -> None:
    for place in range(len(STREAM) + 1):
        assert fed(cut(STREAM, [place])) == data_of(STREAM), place
    assert fed([STREAM[at : at + 1] for at in range(len(STREAM))]) == data_of(STREAM)


@pytest.mark.parametrize("size", [64, 4096, 300_000])
def test_a_long_event_takes_time_by_its_length(size: int) -> None:
    event = b"data: " + b"x" * 10_000_000 + b"\n\n"
    chunks = [event[start : start + size] for start in range(0, len(event), size)]
    began = time.process_time()
    (data,) = fed(chunks)
    assert data == event[6:-2]
    # To copy it all for every chunk would take minutes.
    assert time.process_time() - began < 2
