r"""The events of a stream while it comes.

Lines end in `\n` or `\r\n`; an event is a run of lines up to a blank one; of its lines only `data` count.
"""


class EventSplitter:
    """Makes events of chunks that may split anywhere; the work grows with the bytes, however they are cut."""

    __slots__ = ("_data", "_line")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are complete by the end of this chunk; several data lines are joined by `\\n`."""
        last = chunk.rfind(b"\n")
        if last < 0:
            self._line.append(chunk)
            return []
        whole = b"".join((*self._line, chunk[:last]))
        self._line = [chunk[last + 1 :]]
        events = []
        for line in whole.split(b"\n"):
            if line.startswith(b"data:"):
                self._data.append(_value(line))
            elif line in (b"", b"\r") and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


def _value(line: bytes) -> bytes:
    start = 6 if line.startswith(b"data: ") else 5
    return line[start:-1] if line.endswith(b"\r") else line[start:]
