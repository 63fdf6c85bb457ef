import asyncio
from collections.abc import Callable

import pytest

from app.feed import Entry, Feed, Missed, Reader

DEADLINE_SECONDS = 10
NOW_SECONDS = 1_760_000_000.0
FIRST = (1_760_000_000_000 << 8) + 1


def feed_of(capacity: int = 4, clock: Callable[[], float] = lambda: NOW_SECONDS) -> Feed[str]:
    return Feed(capacity, clock)


def ready(reader: Reader[str]) -> list[str | Missed]:
    """All that a reader has without waiting."""
    found = []
    while (item := reader.take()) is not None:
        found.append(item.value if isinstance(item, Entry) else item)
    return found


async def rest(reader: Reader[str]) -> list[str | Missed]:
    """All until the end."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [item.value if isinstance(item, Entry) else item async for item in reader]


def test_a_new_reader_gets_what_comes_from_now_on_with_rising_numbers() -> None:
    feed = feed_of()
    feed.publish("before")
    reader = feed.read()
    assert [feed.publish(text) for text in "ab"] == [FIRST + 1, FIRST + 2]
    assert [reader.take(), reader.take(), reader.take()] == [Entry(FIRST + 1, "a"), Entry(FIRST + 2, "b"), None]


@pytest.mark.parametrize(("after", "expected"), [(FIRST - 1, ["a", "b", "c"]), (FIRST + 1, ["c"]), (FIRST + 2, [])])
def test_a_place_that_is_kept_is_resumed(after: int, expected: list[str]) -> None:
    feed = feed_of()
    for text in "abc":
        feed.publish(text)
    assert ready(feed.read(after)) == expected


def test_what_is_gone_is_counted() -> None:
    feed = feed_of(capacity=3)
    for text in "abcdef":
        feed.publish(text)
    assert ready(feed.read(FIRST)) == [Missed(FIRST + 2, 2), "d", "e", "f"]
    assert ready(feed.read(FIRST - 1))[0] == Missed(FIRST + 2, 3)
    # Who resumes after the notice is not told again.
    assert ready(feed.read(FIRST + 2)) == ["d", "e", "f"]


@pytest.mark.parametrize("after", [0, FIRST - 2, FIRST + 3, 1 << 70])
def test_a_place_in_another_run_is_unknown_and_all_that_is_kept_follows(after: int) -> None:
    feed = feed_of()
    for text in "abc":
        feed.publish(text)
    assert ready(feed.read(after)) == [Missed(FIRST - 1, None), "a", "b", "c"]


def test_a_later_run_gives_no_number_again() -> None:
    earlier = feed_of()
    last = [earlier.publish("x") for _ in range(200)][-1]
    assert feed_of(clock=lambda: NOW_SECONDS + 0.001).publish("y") > last


async def test_everybody_who_waits_is_woken_and_hears_the_same() -> None:
    feed = feed_of(capacity=100)
    readers = [asyncio.create_task(rest(feed.read())) for _ in range(3)]
    for text in "abc":
        await asyncio.sleep(0)
        feed.publish(text)
        # Some have not read yet when the next one comes.
        feed.publish(text.upper())
    feed.close()
    assert await asyncio.gather(*readers) == [list("aAbBcC")] * 3


async def test_a_reader_that_falls_behind_ends_and_the_others_do_not_notice() -> None:
    feed = feed_of(capacity=3)
    slow, quick = feed.read(), feed.read()
    heard = []
    for number in range(5):
        feed.publish(str(number))
        heard += ready(quick)
    assert heard == ["0", "1", "2", "3", "4"]
    assert await rest(slow) == []
    assert (slow.was_dropped, quick.was_dropped) == (True, False)


async def test_the_end_comes_after_what_is_there() -> None:
    feed = feed_of()
    reader = feed.read()
    feed.publish("last words")
    feed.close()
    assert await rest(reader) == ["last words"]
    feed.publish("too late")
    assert await rest(feed.read(FIRST - 1)) == ["last words", "too late"]


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    feed = feed_of()
    reader, other = feed.read(), feed.read()
    waiting = asyncio.ensure_future(anext(reader))
    others = asyncio.ensure_future(anext(other))
    await asyncio.sleep(0)
    feed.publish("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await others).sequence == FIRST
    assert ready(reader) == ["a"]
