"""The line of those who wait for a profile: callers take turns, and each of them sends first who came first. Pure."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """A queue that is fair between callers; None is the one without a name.

    The callers stand in a ring: `take` gives the oldest of the caller in front, who then goes to the end. So the first
    of each caller waits for no more than one of each other caller, however many those have; where there is one caller,
    all come in the order they joined.
    """

    def __init__(self) -> None:
        self._ring: OrderedDict[str | None, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def join(self, caller: str | None, waiter: T) -> None:
        """To the end of its caller's own; a caller who has none in the line yet to the end of the ring."""
        self._ring.setdefault(caller, deque()).append(waiter)
        self._length += 1

    def leave(self, caller: str | None, waiter: T) -> bool:
        """Without having had its turn; False where it does not stand in the line."""
        own = self._ring.get(caller)
        if own is None or waiter not in own:
            return False
        own.remove(waiter)
        self._length -= 1
        if not own:
            del self._ring[caller]
        return True

    def first(self) -> T | None:
        """Whose turn it is; None where nobody waits."""
        return next(iter(self._ring.values()))[0] if self._ring else None

    def take(self) -> T:
        """Who is first, and has its turn now. KeyError where nobody waits."""
        caller, own = self._ring.popitem(last=False)
        waiter = own.popleft()
        self._length -= 1
        if own:
            self._ring[caller] = own
        return waiter

    def surplus(self, caller: str | None) -> T:
        """Who has to go where the line has become too long for the newest of `caller`.

        It is the newest of whoever has most in the line; of equals, that of this caller, so that nobody's place changes
        hands to and fro. KeyError where this caller has none.
        """
        most = self._ring[caller]
        for others in self._ring.values():
            if len(others) > len(most):
                most = others
        return most[-1]
