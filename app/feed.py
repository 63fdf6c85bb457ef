"""A feed: the last things that happened, numbered, for readers who come, fall behind, leave and come back.

A reader is a place in one shared ring and nothing more: it holds no queue, so a slow one costs nobody anything. All of
it belongs to one event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

T = TypeVar("T")

# Milliseconds since 1970 times 256 stay exact in a JavaScript number until the year 3084, and a feed would have to
# carry 256,000 entries a second from its first moment on to reach the numbers of its successor.
_SEQUENCE_BITS = 8


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """Something that happened, under its number."""

    sequence: int
    value: T


@dataclass(frozen=True, slots=True)
class Missed:
    """Entries are gone that the reader has not seen; reading goes on after `sequence`.

    `count` is None where it is not known: the place to resume from was given by an earlier run.
    """

    sequence: int
    count: int | None


class Feed(Generic[T]):
    """The last `capacity` entries. Their numbers rise by one and begin with the time: no later feed gives them again.

    `clock` answers seconds since 1970.
    """

    def __init__(self, capacity: int, clock: Callable[[], float] = time.time) -> None:
        self._kept: deque[T] = deque(maxlen=capacity)
        self._before_first = self._last = int(clock() * 1000) << _SEQUENCE_BITS
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._is_closed = False

    @property
    def last(self) -> int:
        """The number of the newest entry; before the first one, the number to resume after to get it."""
        return self._last

    @property
    def before_oldest(self) -> int:
        """The number to resume after to get all that is kept."""
        return self._last - len(self._kept)

    @property
    def is_closed(self) -> bool:
        """Whether nobody shall wait here any more."""
        return self._is_closed

    def publish(self, value: T) -> int:
        """Add an entry; its number. Never waits, whoever reads."""
        self._kept.append(value)
        self._last += 1
        if self._waiting:
            self._arrived.set()
        return self._last

    def close(self) -> None:
        """End every reader when it has what is there. What is published later is kept, and wakes nobody."""
        self._is_closed = True
        self._arrived.set()

    def read(self, after: int | None = None) -> "Reader[T]":
        """A reader of what comes after this number; None reads what comes from now on.

        Where entries after that number are gone, or the number is none of this feed, the reader begins with Missed and
        goes on with all that is kept.
        """
        if after is None:
            return Reader(self, self._last)
        if self._before_first <= after <= self._last:
            missed_count = self.before_oldest - after
            if missed_count <= 0:
                return Reader(self, after)
            return Reader(self, self.before_oldest, Missed(self.before_oldest, missed_count))
        return Reader(self, self.before_oldest, Missed(self.before_oldest, None))

    def value_at(self, sequence: int) -> T:
        """The value of an entry that is kept."""
        return self._kept[sequence - self._last - 1]

    async def arrival(self) -> None:
        """Wait for the next entry, or for the end."""
        if self._is_closed:
            return
        # Who waits already and has been told is not stopped by this: the event has woken it.
        self._arrived.clear()
        self._waiting += 1
        try:
            await self._arrived.wait()
        finally:
            self._waiting -= 1


class Reader(Generic[T]):
    """One reader's place in a feed, as an async iterator. A wait that is cancelled loses nothing.

    It ends with the feed, and when the feed has overtaken it: then `was_dropped`, and who resumes after the last entry
    that it gave is told how many are gone.
    """

    def __init__(self, feed: Feed[T], after: int, missed: Missed | None = None) -> None:
        self._feed = feed
        self._position = after
        self._missed = missed
        self.was_dropped = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry[T] | Missed:
        """The next entry, as soon as there is one."""
        while (found := self.take()) is None:
            if self.was_dropped or self._feed.is_closed:
                raise StopAsyncIteration
            await self._feed.arrival()
        return found

    def take(self) -> Entry[T] | Missed | None:
        """The next entry if it is there."""
        if self._missed is not None:
            missed, self._missed = self._missed, None
            return missed
        if self._position < self._feed.before_oldest:
            self.was_dropped = True
        if self.was_dropped or self._position >= self._feed.last:
            return None
        self._position += 1
        return Entry(self._position, self._feed.value_at(self._position))
