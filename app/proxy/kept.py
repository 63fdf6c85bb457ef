"""What is kept of an answer while it passes, within bounds."""

from collections import deque

_MOST_STREAM_BYTES = 256 * 1024
_MOST_LONG_EVENT_BYTES = 16 * 1024 * 1024
_BEGINNING_BYTES = 16 * 1024
_BOUNDARY = b"\n\n"
_COMMENT = b":"


class KeptAnswer:
    """An answer in one piece, all of it up to `most_bytes`.

    Of a longer one the beginning is kept, where that `suffices`, or nothing.
    """

    __slots__ = ("_chunks", "_is_whole", "_kept_bytes", "_most_bytes", "_suffices")

    def __init__(self, most_bytes: int, *, suffices: bool) -> None:
        self._chunks: list[bytes] = []
        self._kept_bytes = 0
        self._most_bytes = most_bytes
        self._suffices = suffices
        self._is_whole = True

    def add(self, data: bytes) -> None:
        """These bytes pass now."""
        if not self._is_whole:
            return
        self._chunks.append(data)
        self._kept_bytes += len(data)
        if self._kept_bytes > self._most_bytes:
            self._is_whole = False
            if not self._suffices:
                self._chunks.clear()

    def joined(self) -> bytes:
        """What is kept."""
        return b"".join(self._chunks)


class KeptStream:
    """The end of a stream, and a little of its beginning.

    Where the last event may be long it is kept whole: `is_whole` and `joined` speak of the end.
    """

    __slots__ = (
        "_beginning",
        "_chunks",
        "_is_between",
        "_kept_bytes",
        "_last_event_bytes",
        "_watches_events",
        "is_whole",
    )

    def __init__(self, *, last_event_is_long: bool = False) -> None:
        self._chunks: deque[bytes] = deque()
        self._kept_bytes = 0
        self._beginning = b""
        self._watches_events = last_event_is_long
        # Of the chunk in which the newest event begins, and all after it; never too little.
        self._last_event_bytes = 0
        self._is_between = True
        self.is_whole = True

    def add(self, data: bytes) -> None:
        """These bytes pass now."""
        self._chunks.append(data)
        self._kept_bytes += len(data)
        most_bytes = _MOST_STREAM_BYTES
        if self._watches_events:
            begins_here = _begins_event(data, is_between=self._is_between)
            self._is_between = data.endswith(_BOUNDARY)
            self._last_event_bytes = len(data) if begins_here else self._last_event_bytes + len(data)
            most_bytes = max(most_bytes, min(self._last_event_bytes, _MOST_LONG_EVENT_BYTES))
        # The last chunk stays however long it is: the end of the stream is in it.
        while self._kept_bytes > most_bytes and len(self._chunks) > 1:
            gone = self._chunks.popleft()
            self._kept_bytes -= len(gone)
            self.is_whole = False
            if len(self._beginning) < _BEGINNING_BYTES:
                self._beginning += gone[:_BEGINNING_BYTES]

    def joined(self) -> bytes:
        """The end."""
        return b"".join(self._chunks)

    def beginning(self, end: bytes) -> bytes:
        """The first bytes of the stream; `end` is what `joined` gave."""
        return end if self.is_whole else self._beginning


def _begins_event(data: bytes, *, is_between: bool) -> bool:
    """Whether an event may begin in `data`, and not only comments, which engines write also after the last."""
    boundary = data.rfind(_BOUNDARY, 0, -1)
    while boundary >= 0:
        if not data.startswith(_COMMENT, boundary + len(_BOUNDARY)):
            return True
        boundary = data.rfind(_BOUNDARY, 0, boundary + 1)
    return is_between and not data.startswith(_COMMENT)
