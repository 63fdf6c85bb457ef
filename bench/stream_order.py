"""What a client wants streamed, said in the text of its request: that passes every proxy as it is."""

import re
from dataclasses import dataclass

_STREAM = re.compile(rb'"stream": ?true')
_PACE = re.compile(rb"(\d+) chunks, (\d+) ms apart(, stamped)?")
_WITH_TIMINGS = re.compile(rb'"timings_per_token": ?true')
_WITH_USAGE = re.compile(rb'"include_usage": ?true')


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """So many events with text, so far apart: with 0 ms as fast as the engine can write them one by one.

    A stamped event has the time of its writing for a text, in microseconds of the monotonic clock.
    """

    chunks: int
    interval_ms: int
    is_stamped: bool = False
    with_timings: bool = False
    with_usage: bool = False

    @property
    def text(self) -> str:
        """What stands in the user's message."""
        return f"{self.chunks} chunks, {self.interval_ms} ms apart{', stamped' if self.is_stamped else ''}"


def order_of(body: bytes) -> StreamOrder | None:
    """What a request body orders; None where it asks for an answer in one piece."""
    pace = _PACE.search(body) if _STREAM.search(body) else None
    if pace is None:
        return None
    return StreamOrder(
        int(pace[1]),
        int(pace[2]),
        is_stamped=pace[3] is not None,
        with_timings=_WITH_TIMINGS.search(body) is not None,
        with_usage=_WITH_USAGE.search(body) is not None,
    )
