"""Facts that others may want to know, told synchronously and in order.

An event is an immutable value in the past tense; its class lives with its publisher. A subscriber is quick and
never awaits: it counts, or puts the fact into a queue of its own.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

_E = TypeVar("_E", bound="Event")
_log = logging.getLogger(__name__)


class Event:
    """Base of every fact."""

    __slots__ = ()


class EventBus:
    """Delivers each event to the subscribers of its class, in the order they subscribed.

    A subscriber that raises is logged and does not keep the others from hearing.
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], tuple[Callable[[Any], None], ...]] = {}

    def subscribe(self, kind: type[_E], subscriber: Callable[[_E], None]) -> None:
        """Call `subscriber` with every event of exactly this class."""
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def publish(self, event: Event) -> None:
        """Tell everyone who asked; never raises."""
        for subscriber in self._subscribers.get(type(event), ()):
            try:
                subscriber(event)
            except Exception:
                _log.exception("a subscriber failed on %s", type(event).__name__)
