"""What engines print, as it comes: one feed for each profile, which goes on over its lives."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.feed import Feed, Reader

_FEED_ENTRIES = 2000


@dataclass(frozen=True, slots=True)
class LifeBegan:
    """The lines that follow are of this instance."""

    instance_id: int


OutputFeed = Feed[str | LifeBegan]


class OutputFeeds:
    """The feeds by profile. `clock` answers seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._feeds: dict[str, OutputFeed] = {}
        self._newest: dict[str, tuple[int, int]] = {}
        self._is_closed = False

    def begin(self, profile_id: str, instance_id: int) -> Callable[[str], object]:
        """A new life: what its lines are to be told to."""
        feed = self._feed(profile_id)
        self._newest[profile_id] = instance_id, feed.publish(LifeBegan(instance_id))
        return feed.publish

    def read(self, profile_id: str, after: int) -> Reader[str | LifeBegan]:
        """A reader of all that the profile's engines print after this number; `tail` gives one to begin with."""
        return self._feed(profile_id).read(after)

    def tail(self, profile_id: str, lines: int) -> int:
        """The number after which the last `lines` lines of the newest life stand; without a life, what is to come."""
        feed = self._feed(profile_id)
        _, began = self._newest.get(profile_id, (None, feed.last))
        return max(began, feed.last - lines, feed.before_oldest)

    def life_at(self, profile_id: str, sequence: int) -> int | None:
        """The id of the newest life where it had begun at this number."""
        instance_id, began = self._newest.get(profile_id, (None, 0))
        return instance_id if began <= sequence else None

    def forget(self, profile_id: str) -> None:
        """The profile is gone: its readers end."""
        self._newest.pop(profile_id, None)
        if (feed := self._feeds.pop(profile_id, None)) is not None:
            feed.close()

    def close(self) -> None:
        """End all readers, now and later: the service stops."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.close()

    def _feed(self, profile_id: str) -> OutputFeed:
        if profile_id not in self._feeds:
            feed: OutputFeed = Feed(_FEED_ENTRIES, self._clock)
            if self._is_closed:
                feed.close()
            self._feeds[profile_id] = feed
        return self._feeds[profile_id]
