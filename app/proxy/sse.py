r"""Server-sent events, as far as a relay needs to look at them.

The stream itself passes through untouched; these functions look at copies of its bytes. Lines end in `\n` or
`\r\n`; an event is a run of lines up to a blank one; lines that begin with `:` are comments.
"""

from collections.abc import Iterator

from app.llama_server.answer_formats import DONE

_PROGRESS = b'"prompt_progress":'
_ERROR = b'{"error"'
# The engine writes null where it has nothing to say yet.
_NO_DATA = frozenset((b"", b"null", DONE))


def last_events(tail: bytes, most: int, *, from_start: bool) -> list[bytes]:
    """The data of at most `most` last events in `tail`, oldest first; several data lines are joined by `\\n`.

    `from_start` says that `tail` begins where the stream began; else its first event may lack its head and is
    left out. A last event without its blank line counts: the stream may have ended there.
    """
    events: list[bytes] = []
    lines: list[bytes] = []
    for line in _lines_backwards(tail, from_start=from_start):
        if line:
            if line.startswith(b"data"):
                lines.append(line)
            continue
        if lines:
            events.append(_data(lines))
            lines = []
            if len(events) >= most:
                break
    else:
        if lines and from_start:
            events.append(_data(lines))
    events.reverse()
    return [event for event in events if event]


def first_event(beginning: bytes) -> bytes:
    """The data of the first event that has any; b"" where there is none."""
    lines: list[bytes] = []
    for ended in beginning.splitlines(keepends=True):
        line = ended.rstrip(b"\r\n")
        if line.startswith(b"data"):
            lines.append(line)
        elif not line and lines:
            break
    return _data(lines[::-1])


def event_of(document: bytes, name: bytes | None = None) -> bytes:
    """A document as an event."""
    head = b"" if name is None else b"event: " + name + b"\n"
    return head + b"data: " + document.replace(b"\n", b"\ndata: ") + b"\n\n"


def _lines_backwards(tail: bytes, *, from_start: bool) -> Iterator[bytes]:
    end = len(tail)
    while end >= 0:
        newline = tail.rfind(b"\n", 0, end)
        if newline < 0 and not from_start:
            return
        line = tail[newline + 1 : end]
        yield line[:-1] if line.endswith(b"\r") else line
        end = newline


def _data(lines_backwards: list[bytes]) -> bytes:
    values = []
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
