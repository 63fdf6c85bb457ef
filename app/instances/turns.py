"""Starts that wait for instances which cannot go at the moment, and how they come to their turn."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Sequence

from app.instances.instance import Instance
from app.instances.state import InstanceState

# Between two looks lies a check: it is not to be made at every end of a request.
_SHORTEST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 5.0


class Turns:
    """Wakes those who wait whenever an instance changes its state or has served its last request.

    Who has waited for `yield_after_seconds` gets a turn: the instances in its way take no new requests, and become
    idle. Without that a profile under steady traffic would never give way.
    """

    def __init__(self, yield_after_seconds: float) -> None:
        self._yield_after_seconds = yield_after_seconds
        self._moved = asyncio.Event()
        self._waiting: set[Turn] = set()
        self.moves = 0

    def move(self) -> None:
        """Something has changed: those who wait look again."""
        self.moves += 1
        if not self._moved.is_set():
            self._moved.set()

    async def next_move(self, seen: int, within_seconds: float = _LONGEST_WAIT_SECONDS) -> None:
        """Until there are more moves than have been `seen`; comes back from time to time anyway."""
        await asyncio.sleep(_SHORTEST_WAIT_SECONDS)
        if self.moves != seen:
            return
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(within_seconds, _LONGEST_WAIT_SECONDS)):
                await self._moved.wait()

    @contextlib.contextmanager
    def turn(self) -> Iterator["Turn"]:
        """For the time of one start."""
        turn = Turn(self, asyncio.get_running_loop().time() + self._yield_after_seconds)
        self._waiting.add(turn)
        try:
            yield turn
        finally:
            self._waiting.discard(turn)
            turn.end()

    def kept_from(self, turn: "Turn") -> frozenset[int]:
        """Instances that let others pass, and not this start: who came later does not take what they wait for."""
        kept = {identifier for other in self._waiting for identifier in other.passing}
        return frozenset(kept.difference(turn.passing))


class Turn:
    """One start's way through its waiting."""

    def __init__(self, turns: Turns, yields_at_seconds: float) -> None:
        self._turns = turns
        self._yields_at_seconds = yields_at_seconds
        self._passing: dict[int, Instance] = {}

    @property
    def passing(self) -> Collection[int]:
        """The instances that take no new requests for this start."""
        return self._passing.keys()

    async def wait_for(self, blockers: Sequence[Instance], seen: int) -> None:
        """Wait for the next move of anything; when it is time, ask the blockers to let this start pass."""
        left_seconds = self._yields_at_seconds - asyncio.get_running_loop().time()
        if left_seconds <= 0:
            for life in blockers:
                # One that loads serves first who waits for it: else two profiles could take turns in loading for ever.
                if life.id not in self._passing and life.state is InstanceState.READY:
                    life.let_pass(True)
                    self._passing[life.id] = life
                    # One that is idle at this moment will not tell of it again.
                    self._turns.move()
        await self._turns.next_move(seen, left_seconds if left_seconds > 0 else _LONGEST_WAIT_SECONDS)

    def end(self) -> None:
        """The start is through, or given up: who let it pass takes requests again."""
        for life in self._passing.values():
            life.let_pass(False)
        if self._passing:
            self._turns.move()
        self._passing.clear()
