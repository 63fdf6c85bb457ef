"""What a server prints: a ring of the last lines in memory, and a rotated file that outlives it."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from logging.handlers import RotatingFileHandler
from pathlib import Path

from app.llama_server.log_noise import lists_cached_prompts

_RING_LINES = 2000
_LINE_CHARACTERS = 8192
_FILE_BYTES = 4 << 20


class OutputLog:
    """The lines of one life. `path` is the file; one older file of the same size is kept beside it.

    `tell` hears every line as it is kept.
    """

    def __init__(self, path: Path, tell: Callable[[str], object] = lambda _: None) -> None:
        self._tell = tell
        self._ring: deque[str] = deque(maxlen=_RING_LINES)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = RotatingFileHandler(path, maxBytes=_FILE_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def append(self, line: str) -> None:
        """Keep one line, without its line feed. Lists of cached prompts are left out."""
        if lists_cached_prompts(line):
            return
        line = line[:_LINE_CHARACTERS]
        self._ring.append(line)
        self._tell(line)
        self._file.emit(logging.LogRecord("engine", logging.INFO, "", 0, line, None, None))

    def tail(self, count: int) -> Sequence[str]:
        """The last `count` lines, oldest first."""
        return list(islice(self._ring, max(0, len(self._ring) - count), None))

    def close(self) -> None:
        """Close the file; the ring stays readable."""
        self._file.close()


def read_tail(path: Path, count: int) -> list[str]:
    """The last `count` lines of a life that is over, oldest first; empty where nothing was kept."""
    lines: deque[str] = deque(maxlen=count)
    for part in (path.with_name(f"{path.name}.1"), path):
        if part.is_file():
            with part.open(encoding="utf-8", errors="replace") as content:
                lines.extend(line.rstrip("\n") for line in content)
    return list(lines)
