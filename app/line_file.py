"""A file in which values wait, one a line, for whoever takes them off: in this run of the service or the next.

Space is reserved ahead, since a full disk is one of the reasons for waiting. A zero byte follows the last line; a line
that was being written when the process or the machine ended has no line feed, and is overwritten. Any thread may call;
calls wait for each other.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
_LINES_AT_ONCE = 1000
# Behind the last line: what was there before it is not to be read again.
_END = b"\0"


@dataclass(frozen=True, slots=True)
class FrontPart(Generic[T]):
    """Some values from the front of the file: `done` takes them off; `unreadable` lines among them were none."""

    values: Sequence[T]
    unreadable: int
    end: int


class LineFile(Generic[T]):
    """A first-in, first-out file of at most `bytes_most`. `open` before use; it may hold what an earlier run left.

    `encode` gives the line of a value, with its line feed and without any zero byte; `decode` the value of a line, and
    raises ValueError where it is none. The space is given back when all of it is done, so a file that never runs empty
    ends up full.
    """

    def __init__(
        self,
        path: Path,
        *,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        bytes_most: int,
        bytes_reserved: int,
    ) -> None:
        self.path = path
        self._encode = encode
        self._decode = decode
        self._bytes_most = bytes_most
        self._bytes_reserved = min(bytes_reserved, bytes_most)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._front = self._end = 0
        self._rows = 0
        self._is_short = False

    @property
    def rows(self) -> int:
        """Lines that are not done."""
        return self._rows

    def open(self) -> None:
        """Open the file and count what is in it. Raises OSError."""
        with self._lock:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._find_end()
            self._reserve()

    def append(self, values: Sequence[T]) -> int:
        """Write values behind the others; how many of them were, the first ones: the others have no room.

        What was written outlives the process, and a power cut once `sync` has returned.
        """
        lines = [self._encode(value) for value in values]
        with self._lock:
            if self._descriptor < 0:
                return 0
            room = self._bytes_most - self._end - len(_END)
            count = _fitting(lines, room)
            written = self._write(b"".join(lines[:count]))
            if written is None:
                # No more disk than this: one by one, as many as go.
                count = next((n for n in range(count) if self._write(lines[n]) is None), count)
            self._rows += count
        return count

    def sync(self) -> None:
        """Have what was written outlive a power cut; where that cannot be, nothing else is lost."""
        with contextlib.suppress(OSError):
            if self._descriptor >= 0:
                os.fdatasync(self._descriptor)

    def clear(self) -> None:
        """Take all of them off."""
        with self._lock:
            self._clear()

    def front(self, most: int) -> FrontPart[T]:
        """The oldest values, at least one where there are any, without taking them off. Raises OSError."""
        with self._lock:
            return self._part(self._front, most)

    def all(self) -> Sequence[T]:
        """Every value, the oldest first, without taking them off. Raises OSError."""
        values: list[T] = []
        with self._lock:
            start = self._front
            while start < self._end and (part := self._part(start, _LINES_AT_ONCE)).end > start:
                values += part.values
                start = part.end
        return values

    def done(self, part: FrontPart[T]) -> None:
        """Take these off the front."""
        with self._lock:
            self._rows -= len(part.values) + part.unreadable
            self._front = part.end
            if self._front >= self._end:
                self._clear()

    def close(self) -> None:
        """Let go of the file; what is in it stays. Closing twice is harmless."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _part(self, start: int, most: int) -> FrontPart[T]:
        data, asked_bytes = b"", _READ_BYTES
        # A line may be longer than what is read at once.
        while b"\n" not in data and len(data) < self._end - start:
            data, had_bytes = os.pread(self._descriptor, min(asked_bytes, self._end - start), start), len(data)
            asked_bytes *= 2
            if len(data) == had_bytes:
                break
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)[:most]
        if not lines and start < self._end:
            _log.error("%s has lost what was in it: somebody else writes there", self.path)
            return FrontPart((), self._rows, self._end)
        values = [value for line in lines for value in self._read(line)]
        return FrontPart(values, len(lines) - len(values), start + sum(map(len, lines)))

    def _read(self, line: bytes) -> Sequence[T]:
        try:
            return (self._decode(line),)
        except ValueError as failure:
            _log.error("a line of %s is none: %s", self.path, failure)
            return ()

    def _write(self, data: bytes) -> int | None:
        """The new end, or None where the disk has no room for all of it; then nothing counts as written."""
        done, ended = 0, data + _END
        try:
            while done < len(ended):
                done += os.pwrite(self._descriptor, ended[done:], self._end + done)
        except OSError as failure:
            if not self._is_short:
                self._is_short = True
                _log.error("%s cannot be written: %s", self.path, failure)
            with contextlib.suppress(OSError):
                # A line half written must not look like one when a whole one is put in front of its rest.
                os.pwrite(self._descriptor, bytes(done), self._end)
            return None
        self._end += len(data)
        return self._end

    def _find_end(self) -> None:
        """Behind the last whole line; zero bytes begin what was only reserved."""
        self._front = self._end = self._rows = at = 0
        while data := os.pread(self._descriptor, _READ_BYTES, at):
            used = data.partition(b"\0")[0]
            self._rows += used.count(b"\n")
            if b"\n" in used:
                self._end = at + used.rfind(b"\n") + 1
            at += len(used)
            if len(used) < len(data):
                break
        self._blank(self._end, os.fstat(self._descriptor).st_size)

    def _clear(self) -> None:
        """What is reserved stays so."""
        end = self._end + len(_END)
        self._front = self._end = self._rows = 0
        self._blank(0, end)
        self._is_short = False

    def _blank(self, start: int, end: int) -> None:
        """Nothing from here on is to be read again, not even where a line that is written over it comes to be torn."""
        with contextlib.suppress(OSError):
            # The first one will do, if no more can be written.
            os.pwrite(self._descriptor, _END, start)
            kept_bytes = max(start + len(_END), self._bytes_reserved)
            if os.fstat(self._descriptor).st_size > kept_bytes:
                os.ftruncate(self._descriptor, kept_bytes)
            for at in range(start, min(end, kept_bytes), _READ_BYTES):
                os.pwrite(self._descriptor, bytes(min(_READ_BYTES, min(end, kept_bytes) - at)), at)

    def _reserve(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, max(self._bytes_reserved, 1))
        except OSError as failure:
            _log.warning("no space can be reserved for %s: %s", self.path, failure)


def _fitting(lines: Iterable[bytes], room: int) -> int:
    count = 0
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        count += 1
    return count
