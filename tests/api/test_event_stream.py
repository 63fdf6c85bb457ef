import asyncio

import pytest
from starlette.types import Message

from app.api.event_stream import EventStream, frame, frames
from app.feed import Entry, Feed

DEADLINE_SECONDS = 10


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        ("plain", b"data: plain\n\n"),
        ("", b"data: \n\n"),
        ("a\rb\r\nc\nd", b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (" kept ", b"data:  kept \n\n"),
        ("\x0b\x85\u2028", "data: \x0b\x85\u2028\n\n".encode()),
        ("half \ud83d", b"data: half ?\n\n"),
        (b'{"a":1}', b'data: {"a":1}\n\n'),
    ],
)
def test_a_line_end_in_the_data_does_not_end_the_event(data: str | bytes, sent: bytes) -> None:
    assert frame(data) == sent
    assert frame(data, sequence=7, name="x") == b"event: x\nid: 7\n" + sent


class Client:
    """What an application gets to see of one that reads nothing, or goes."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.blocked = asyncio.Event()
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.blocked.is_set():
            await asyncio.Event().wait()
        self.sent.append(message)


def stream_of(feed: Feed[str], *, taking_seconds: float = DEADLINE_SECONDS) -> EventStream:
    def show(entry: Entry[str]) -> bytes:
        return frame(entry.value)

    return EventStream(frames(feed.read(), show), taking_seconds=taking_seconds)


async def test_who_takes_nothing_is_dropped() -> None:
    feed: Feed[str] = Feed(10)
    client = Client()
    client.blocked.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await stream_of(feed, taking_seconds=0.02)({}, client.receive, client.send)
    assert client.sent == []


async def test_who_goes_is_let_go() -> None:
    feed: Feed[str] = Feed(10)
    client = Client()
    answering = asyncio.create_task(stream_of(feed)({}, client.receive, client.send))
    client.gone.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await answering


async def test_who_is_overtaken_by_the_feed_is_ended_and_the_answer_is_whole() -> None:
    feed: Feed[str] = Feed(2)
    client = Client()
    stream = stream_of(feed)
    for text in "abc":
        feed.publish(text)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await stream({}, client.receive, client.send)
    assert [message.get("body") for message in client.sent] == [None, b":\n", b""]


async def test_an_entry_that_cannot_be_shown_is_an_error_and_no_silence() -> None:
    feed: Feed[str] = Feed(2)
    client = Client()

    def show(entry: Entry[str]) -> bytes:
        raise LookupError(entry.value)

    stream = EventStream(frames(feed.read(), show))
    feed.publish("x")
    with pytest.raises(LookupError):
        await stream({}, client.receive, client.send)


async def test_who_has_much_to_catch_up_with_does_not_hold_the_others_up() -> None:
    feed: Feed[str] = Feed(1000)
    client, turns = Client(), 0
    stream = stream_of(feed)
    for _ in range(1000):
        feed.publish("x")
    feed.close()
    answering = asyncio.create_task(stream({}, client.receive, client.send))
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 20
    assert sum(message.get("body", b"").count(b"data") for message in client.sent) == 1000


async def test_what_is_there_already_is_sent_at_once() -> None:
    feed: Feed[str] = Feed(10)
    client = Client()
    stream = stream_of(feed)
    for text in "abc":
        feed.publish(text)
    feed.close()
    await stream({}, client.receive, client.send)
    assert [message.get("body") for message in client.sent[1:]] == [b":\n", b"data: a\n\ndata: b\n\ndata: c\n\n", b""]
