"""Reading forward through a file that may lie: every read is bounded, every failure is named.

Reads are copies into one small window. A memory map would be shorter, but a file that is
truncated while it is mapped (a download that restarts) kills the process with SIGBUS.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from app.errors import ModelFileMissing, ModelFileUnreadable

WINDOW_BYTES: Final = 1 << 20
_U64: Final = struct.Struct("<Q")
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class Digest(Protocol):
    """What `hashlib.blake2b()` gives."""

    def update(self, data: memoryview, /) -> None:
        """Take in more bytes."""


def shown(path: Path | str) -> str:
    """A path that can be printed, logged and sent as JSON, whatever bytes the file name holds."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in str(path)
    )


class Cursor:
    """A position in an open file. Nothing is read past `limit_bytes`, or past the end."""

    def __init__(self, descriptor: int, path: Path, size_bytes: int, limit_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._window = b""
        self._window_at = 0
        self._next = 0

    @property
    def position(self) -> int:
        """Byte of the file that is read next."""
        return self._window_at + self._next

    def seek(self, position: int) -> None:
        """Go on from another byte of the file."""
        self._window, self._window_at, self._next = b"", position, 0

    def unreadable(self, expected: str, seen: str, *, byte: int | None = None, fix: str = "") -> ModelFileUnreadable:
        """The error to raise: what was expected, what is there, and where."""
        at = self.position if byte is None else byte
        return ModelFileUnreadable(
            f"{shown(self.path)}: expected {expected} at byte {at}, saw {seen}" + (f": {fix}" if fix else ""),
            path=shown(self.path),
            byte=at,
            expected=expected,
            observed=seen,
        )

    def take(self, count_bytes: int, what: str) -> bytes:
        """The next `count_bytes` bytes; callers keep the number small."""
        self._fill(count_bytes, what)
        start, self._next = self._next, self._next + count_bytes
        return self._window[start : self._next]

    def number(self, layout: struct.Struct, what: str) -> Any:
        """One number in the given layout."""
        return layout.unpack(self.take(layout.size, what))[0]

    def skip(self, count_bytes: int, digest: Digest, what: str) -> None:
        """Pass over bytes of any number, feeding them to `digest`."""
        self._within(count_bytes, what)
        while count_bytes:
            step = min(count_bytes, WINDOW_BYTES)
            self._fill(step, what)
            digest.update(memoryview(self._window)[self._next : self._next + step])
            self._next += step
            count_bytes -= step

    def skip_strings(self, count: int, digest: Digest, what: str) -> None:
        """Pass over `count` strings (length, then bytes), feeding all of them to `digest`."""
        self._within(count * _U64.size, what)
        unpack, left = _U64.unpack_from, count
        while left:
            self._fill(_U64.size, what)
            window, at, last = self._window, self._next, len(self._window) - _U64.size
            while left and at <= last:
                after = at + _U64.size + unpack(window, at)[0]
                if after > len(window):
                    break
                at = after
                left -= 1
            digest.update(memoryview(window)[self._next : at])
            self._next = at
            if left:
                self._fill(_U64.size, what)
                self.skip(_U64.size + unpack(self._window, self._next)[0], digest, what)
                left -= 1

    def _within(self, count_bytes: int, what: str) -> None:
        end = self.position + count_bytes
        if end > self.size_bytes:
            raise self.unreadable(
                f"{count_bytes} bytes of {what}",
                f"the end of the file at byte {self.size_bytes}",
                fix="the file is truncated or damaged, fetch it again",
            )
        if end > self._limit_bytes:
            raise self.unreadable(
                f"a header within {self._limit_bytes} bytes",
                f"{what} that reaches to byte {end}",
                fix="no model has a header of that size, the file is damaged",
            )

    def _fill(self, count_bytes: int, what: str) -> None:
        """Make the window hold the next `count_bytes` bytes."""
        if len(self._window) - self._next >= count_bytes:
            return
        self._within(count_bytes, what)
        start = self.position
        wanted = min(max(count_bytes, WINDOW_BYTES), self.size_bytes - start)
        pieces: list[bytes] = []
        while wanted > 0:
            try:
                piece = os.pread(self._descriptor, wanted, start + sum(map(len, pieces)))
            except OSError as error:
                raise self.unreadable(what, f"a read error ({error.strerror})") from error
            if not piece:
                break
            pieces.append(piece)
            wanted -= len(piece)
        self._window, self._window_at, self._next = b"".join(pieces), start, 0
        if len(self._window) < count_bytes:
            raise self.unreadable(what, "a file that became shorter while it was read")


@contextmanager
def open_cursor(path: Path, limit_bytes: int) -> Iterator[Cursor]:
    """Open a regular file for reading.

    Raises ModelFileMissing where there is none, ModelFileUnreadable for folders, pipes, devices
    and files that may not be read. Never waits: a pipe without a writer is refused at once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _not_opened(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
            raise ModelFileUnreadable(
                f"{shown(path)}: expected a GGUF file, saw {kind}: name the .gguf file itself",
                path=shown(path),
                expected="a GGUF file",
                observed=kind,
            )
        yield Cursor(descriptor, path, status.st_size, limit_bytes)
    finally:
        os.close(descriptor)


def _not_opened(path: Path, error: OSError | ValueError) -> ModelFileMissing | ModelFileUnreadable:
    if isinstance(error, ValueError) or error.errno in _GONE:
        return ModelFileMissing(
            f"{shown(path)}: there is no such file: correct the path, or fetch the model",
            path=shown(path),
        )
    why = error.strerror or "it cannot be opened"
    return ModelFileUnreadable(
        f"{shown(path)}: expected a readable GGUF file, saw an error: {why}",
        path=shown(path),
        expected="a readable GGUF file",
        observed=why,
    )
