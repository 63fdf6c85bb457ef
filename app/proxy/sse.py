r"""Server-sent events, as far as a relay needs to look at them.

The stream itself passes through untouched; these functions look at copies of its bytes. Lines end in `\n`, `\r` or
`\r\n`; an event is a run of lines up to a blank one; lines that begin with `:` are comments; a byte order mark may
come first. Source: "Interpreting an event stream" of the HTML standard.
"""

from collections.abc import Iterator

from app.llama_server.answer_formats import DONE

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_PROGRESS = b'"prompt_progress":'
_ERROR = b'{"error"'
_LINE_ENDS = (b"\n", b"\r")
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")
# The engine writes null where it has nothing to say yet.
_NO_DATA = frozenset((b"", b"null", DONE))


def last_events(tail: bytes, most: int, *, from_start: bool) -> list[bytes]:
    """The data of at most `most` last events in `tail`, oldest first; several data lines are joined by `\\n`.

    `from_start` says that `tail` begins where the stream began; else its first event may lack its head and is
    left out. A last event without its blank line counts: the stream may have ended there.
    """
    events: list[bytes] = []
    lines: list[bytes] = []
    if from_start:
        tail = tail.removeprefix(BYTE_ORDER_MARK)
    for line in _lines_backwards(with_plain_ends(tail), from_start=from_start):
        if line:
            if line.startswith(b"data"):
                lines.append(line)
            continue
        if data := _data(lines):
            events.append(data)
            if len(events) >= most:
                break
        lines = []
    else:
        if from_start and (data := _data(lines)):
            events.append(data)
    events.reverse()
    return events


def first_event(beginning: bytes) -> bytes:
    """The data of the first event that has any; b"" where there is none."""
    lines: list[bytes] = []
    for line in beginning.removeprefix(BYTE_ORDER_MARK).splitlines():
        if line.startswith(b"data"):
            lines.append(line)
        elif not line:
            if data := _data(lines[::-1]):
                return data
            lines = []
    return _data(lines[::-1])


def event_of(document: bytes, name: bytes | None = None) -> bytes:
    """A document as an event."""
    head = b"" if name is None else b"event: " + name + b"\n"
    return head + b"data: " + with_plain_ends(document).replace(b"\n", b"\ndata: ") + b"\n\n"


def with_plain_ends(data: bytes) -> bytes:
    """The same lines, each with `\\n` at its end."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _lines_backwards(tail: bytes, *, from_start: bool) -> Iterator[bytes]:
    end = len(tail)
    while end >= 0:
        newline = tail.rfind(b"\n", 0, end)
        if newline < 0 and not from_start:
            return
        yield tail[newline + 1 : end]
        end = newline


def _data(lines_backwards: list[bytes]) -> bytes:
    values: list[bytes] = []
    for line in reversed(lines_backwards):
        name, _, value = line.partition(b":")
        if name == b"data":
            values.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(values)


class OutputWatch:
    """Finds the first data event that carries output, over chunks that may split anywhere.

    Comments, prompt progress, errors and the end mark are no output, nor is what lacks the `mark`.
    """

    __slots__ = ("_mark", "_most_bytes", "_rest")

    def __init__(self, mark: bytes = b"", most_bytes: int = 64 * 1024) -> None:
        self._rest = b""
        self._mark = mark
        self._most_bytes = most_bytes

    def feed(self, chunk: bytes) -> bool:
        """Whether output has begun by the end of this chunk. A line over the limit counts as output."""
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r", b"\n")  # one blank line more says nothing here
        if self._rest:
            chunk = self._rest + chunk
        start = 0
        while (newline := chunk.find(b"\n", start)) >= 0:
            if self._is_output(chunk[start:newline]):
                return True
            start = newline + 1
        self._rest = chunk[start:]
        return len(self._rest) > self._most_bytes

    def _is_output(self, line: bytes) -> bool:
        if not line.startswith(b"data:") or self._mark not in line:
            return False
        data = line[5:].strip()
        return data not in _NO_DATA and not data.startswith(_ERROR) and _PROGRESS not in data


def ends_between_events(passed: bytes) -> bool:
    """Whether these bytes end with a blank line, or are none."""
    return not passed or passed.endswith(_BLANK_LINES)


class WholeLines:
    """Passes lines on when they are whole, so that a stream can be ended anywhere without half an event in it.

    Clients fail on half an event where they would understand an error. `rest` is what waits for its end; a line over
    the limit waits no more.
    """

    __slots__ = ("_last", "_most_bytes", "rest")

    def __init__(self, most_bytes: int = 16 * 1024) -> None:
        self._most_bytes = most_bytes
        self._last = b""
        self.rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """What of it, and of what waits, is to be passed on now."""
        if self.rest:
            chunk, self.rest = self.rest + chunk, b""
        if not chunk.endswith(_LINE_ENDS):
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if len(chunk) - end <= self._most_bytes:
                chunk, self.rest = chunk[:end], chunk[end:]
        if chunk:
            self._last = chunk
        return chunk

    @property
    def is_between_events(self) -> bool:
        """Whether what was passed on ends with a blank line, or is nothing."""
        return ends_between_events(self._last)
