r"""The events of a stream while it comes.

Lines end in `\n`, `\r` or `\r\n`; an event is a run of lines up to a blank one; of its lines only `data` count; a
byte order mark may come first. Source: "Interpreting an event stream" of the HTML standard.
"""

from app.proxy.sse import BYTE_ORDER_MARK, with_plain_ends


class EventSplitter:
    """Makes events of chunks that may split anywhere; the work grows with the bytes, however they are cut."""

    __slots__ = ("_data", "_follows_return", "_is_first", "_line")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._is_first = True
        self._follows_return = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are complete by the end of this chunk; several data lines are joined by `\\n`."""
        if self._follows_return:
            # The line ended there already.
            self._follows_return = not chunk
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._follows_return = chunk.endswith(b"\r")
            chunk = with_plain_ends(chunk)
        last = chunk.rfind(b"\n")
        if last < 0:
            self._line.append(chunk)
            return []
        whole = b"".join((*self._line, chunk[:last]))
        self._line = [chunk[last + 1 :]]
        if self._is_first:
            self._is_first = False
            whole = whole.removeprefix(BYTE_ORDER_MARK)
        events = []
        for line in whole.split(b"\n"):
            if line.startswith(b"data:"):
                self._data.append(line[6 if line.startswith(b"data: ") else 5 :])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
