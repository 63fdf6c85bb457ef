"""The spill file: finished requests that the database did not take in time, until it does.

One event is one line of JSON, members by name, so that a later version reads what an earlier one left. Space is
reserved ahead, since a full disk is one of the reasons for being here. A zero byte follows the last line; a line that
was being written when the process or the machine ended has no line feed, and is overwritten. Any thread may call; calls
wait for each other.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.proxy.observer import RequestFinished
from app.telemetry.rows import storable

_log = logging.getLogger(__name__)

SPILL_BYTES_MOST = 64 * 1024 * 1024
SPILL_BYTES_RESERVED = 2 * 1024 * 1024
_READ_BYTES = 1024 * 1024
# Behind the last line: what was there before it is not to be read again.
_END = b"\0"

_decode = msgspec.json.Decoder(RequestFinished).decode


@dataclass(frozen=True, slots=True)
class SpilledPart:
    """Some events from the front of the file: `done` takes them off; `unreadable` lines among them were none."""

    events: Sequence[RequestFinished]
    unreadable: int
    end: int


class SpillFile:
    """A first-in, first-out file of at most `bytes_most`. `open` before use; it may hold what an earlier run left.

    The space is given back when all of it is done, so a file that never runs empty ends up full.
    """

    def __init__(
        self, path: Path, *, bytes_most: int = SPILL_BYTES_MOST, bytes_reserved: int = SPILL_BYTES_RESERVED
    ) -> None:
        self.path = path
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

    def append(self, events: Sequence[RequestFinished]) -> int:
        """Write events behind the others; how many of them were, the first ones: the others have no room.

        What was written outlives the process, and a power cut once `sync` has returned.
        """
        lines = [_line(event) for event in events]
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
            os.fdatasync(self._descriptor)

    def clear(self) -> None:
        """Take all of them off: they are recorded."""
        with self._lock:
            self._clear()

    def front(self, most: int) -> SpilledPart:
        """The oldest events, at least one where there are any, without taking them off. Raises OSError."""
        with self._lock:
            data = os.pread(self._descriptor, min(_READ_BYTES, self._end - self._front), self._front)
            lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)[:most]
            events = [event for line in lines if (event := _event(line)) is not None]
            return SpilledPart(events, len(lines) - len(events), self._front + sum(map(len, lines)))

    def done(self, part: SpilledPart) -> None:
        """Take these off the front: they are recorded, or given up."""
        with self._lock:
            self._rows -= len(part.events) + part.unreadable
            self._front = part.end
            if self._front >= self._end:
                self._clear()

    def close(self) -> None:
        """Let go of the file; what is in it stays. Closing twice is harmless."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _write(self, data: bytes) -> int | None:
        """The new end, or None where the disk has no room for all of it; then nothing counts as written."""
        done, ended = 0, data + _END
        try:
            while done < len(ended):
                done += os.pwrite(self._descriptor, ended[done:], self._end + done)
        except OSError as failure:
            if not self._is_short:
                self._is_short = True
                _log.error("the spill file %s cannot be written: %s", self.path, failure)
            with contextlib.suppress(OSError):
                # A line half written must not look like one when a whole one is put in front of its rest.
                os.pwrite(self._descriptor, bytes(done), self._end)
            return None
        self._end += len(data)
        return self._end

    def _find_end(self) -> None:
        """Behind the last whole line; zero bytes begin what was only reserved."""
        self._front = self._end = self._rows = 0
        while data := os.pread(self._descriptor, _READ_BYTES, self._end):
            used = data.partition(b"\0")[0]
            whole = used.rfind(b"\n") + 1
            self._rows += used.count(b"\n")
            self._end += whole
            if not whole or len(used) < len(data):
                with contextlib.suppress(OSError):
                    os.pwrite(self._descriptor, bytes(len(used) - whole), self._end)
                return

    def _clear(self) -> None:
        """A zero byte ends what is read, so the first one will do. What is reserved stays so."""
        self._front = self._end = self._rows = 0
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, b"\0", 0)
            if os.fstat(self._descriptor).st_size > self._bytes_reserved:
                os.ftruncate(self._descriptor, self._bytes_reserved)
        self._is_short = False

    def _reserve(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, max(self._bytes_reserved, 1))
        except OSError as failure:
            _log.warning("no space can be reserved for the spill file %s: %s", self.path, failure)


def _fitting(lines: Iterable[bytes], room: int) -> int:
    count = 0
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        count += 1
    return count


def _line(event: RequestFinished) -> bytes:
    try:
        return msgspec.json.encode(event) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can smuggle in.
        texts = ("client_request_id", "requested_model", "route_reason", "error", "client", "category")
        values = {name: getattr(event, name) for name in texts}
        mended = {name: value if value is None else storable(value) for name, value in values.items()}
        return msgspec.json.encode(msgspec.structs.replace(event, **mended)) + b"\n"


def _event(line: bytes) -> RequestFinished | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        _log.error("a line of the spill file is none: %s", failure)
        return None
