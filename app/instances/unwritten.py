"""Lives as the database has not taken them yet: the newest record of each, and the file in which they outlast us."""

import logging
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from app.instances.told import ToldRecord
from app.line_file import LineFile

_log = logging.getLogger(__name__)

# A database that stands still for weeks must not eat the memory of the service.
_LIVES_MOST = 10_000
_BYTES_MOST = 64 * 1024 * 1024
_BYTES_RESERVED = 512 * 1024


def file_of_lives(path: Path) -> LineFile[ToldRecord]:
    """A file for records; of those of one life the last one told counts."""
    return LineFile(
        path,
        encode=lambda told: told.document.encode() + b"\n",
        decode=lambda line: ToldRecord.read(line.decode().rstrip()),
        bytes_most=_BYTES_MOST,
        bytes_reserved=_BYTES_RESERVED,
    )


class UnwrittenLives:
    """Any thread may call. Without a file they are in memory alone."""

    def __init__(self, file: LineFile[ToldRecord] | None = None) -> None:
        self._file = file
        self._newest: dict[int, ToldRecord] = {}
        self._lock = threading.Lock()
        # Whoever has the file holds this, and may take `_lock` then; who puts a record in never waits for a disk.
        self._filing = threading.Lock()
        self._in_file: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def put(self, told: ToldRecord) -> None:
        """Take the place of an older one of the same life."""
        with self._lock:
            if told.is_newer_than(self._newest.get(told.record.id)):
                self._newest[told.record.id] = told
            if len(self._newest) > _LIVES_MOST:
                oldest = next(iter(self._newest))
                del self._newest[oldest]
                _log.error("more than %d lives wait for the database: the oldest is forgotten", _LIVES_MOST)

    def get(self, identifier: int) -> ToldRecord | None:
        """The newest record of a life, None where the database has it."""
        return self._newest.get(identifier)

    def all(self) -> Mapping[int, ToldRecord]:
        """The newest record of each life, by its id."""
        with self._lock:
            return dict(self._newest)

    def first(self, most: int) -> Sequence[ToldRecord]:
        """Some of them."""
        with self._lock:
            return list(islice(self._newest.values(), most))

    def done(self, batch: Sequence[ToldRecord]) -> None:
        """These are in the database, or given up; what was told of their lives since is not."""
        with self._lock:
            for told in batch:
                if self._newest.get(told.record.id) is told:
                    del self._newest[told.record.id]
        if self._in_file and not self._newest:
            with self._filing:
                if self._file is not None and not self._newest:
                    self._file.clear()
                    self._in_file.clear()

    def open(self) -> Sequence[ToldRecord]:
        """Open the file; the newest record of each life that an earlier run left there. It stays there until `done`."""
        found: dict[int, ToldRecord] = {}
        if self._file is None:
            return ()
        with self._filing:
            try:
                self._file.open()
                for told in self._file.all():
                    if told.is_newer_than(found.get(told.record.id)):
                        found[told.record.id] = told
                if not found:
                    self._file.clear()  # what is in it nobody can read
            except OSError as failure:
                _log.error("what an earlier run left of its instances cannot be read: %s", failure)
            self._in_file.update((identifier, told.number) for identifier, told in found.items())
        return list(found.values())

    def copy(self) -> bool:
        """Have the file hold all of them; whether it does. Takes a thread of its own, since disks may stand still."""
        if self._file is None:
            return not self._newest
        with self._filing:
            missing = [told for told in self.all().values() if self._in_file.get(told.record.id) != told.number]
            count = self._file.append(missing)
            self._in_file.update((told.record.id, told.number) for told in missing[:count])
        return count == len(missing)

    def close(self) -> None:
        """Copy what is left, for the next start, and let go of the file."""
        if not self.copy():
            _log.error("there is no room for the last records of instances: %d may be lost", len(self._newest))
        if self._file is not None:
            self._file.sync()
            self._file.close()
