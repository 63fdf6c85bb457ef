"""Ids that sort by time: 43 bits of milliseconds since 1970, then 20 bits of sequence.

One integer serves as the primary key of a row (so newest-first needs no second index, and a time range is
a key range) and, written as 16 hexadecimal digits, as the public id.
"""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

_SEQUENCE_BITS = 20


class TimeOrderedIds:
    """A source of strictly increasing ids; one per kind of thing and process.

    `clock` answers seconds since 1970 and may step back: ids never do.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Seeded once: asking the kernel for chance would be a call into it for each request.
        self._chance = random.Random()  # noqa: S311 - ids are no secret
        self._last = 0

    def next(self) -> int:
        """The next id; two processes that share a database differ in the low bits by chance."""
        fresh = first_id_at(int(self._clock() * 1000)) + self._chance.getrandbits(_SEQUENCE_BITS - 4)
        self._last = max(fresh, self._last + 1)
        return self._last


def first_id_at(milliseconds: int) -> int:
    """The smallest id that could be given at this time (milliseconds since 1970)."""
    return milliseconds << _SEQUENCE_BITS


IDS_PER_HOUR = first_id_at(3_600_000)


def id_time(identifier: int) -> datetime:
    """When the id was given, in UTC, to the millisecond."""
    return datetime.fromtimestamp((identifier >> _SEQUENCE_BITS) / 1000, UTC)


def id_text(identifier: int) -> str:
    """The public form: 16 hexadecimal digits, sorting as the number does."""
    return f"{identifier:016x}"


def parse_id(text: str) -> int | None:
    """The number behind a public id, or None where the text is not one."""
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        return None
    number = int(text, 16)
    return number if number < 1 << 63 else None
