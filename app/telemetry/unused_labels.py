"""Labels that no row points at any more: found and deleted beside a recorder that goes on.

No index says which rows point at a label, as it would be a tenth of the file. So all rows are read once, page by page,
and what none of them points at is deleted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from sqlmodel import Session

from app.database import Database
from app.telemetry.interning import Labels
from app.telemetry.tables import RequestRow

T = TypeVar("T")

_log = logging.getLogger(__name__)

# So few are not worth reading all rows: they are a megabyte at most.
_FEW = 1000
# Nor is it before so much of the rows went since the last time.
_SHARE_GONE = 0.1
_PAGE_ROWS = 500
_PIECE_LABELS = 100
_PAUSE_SECONDS = 0.002

_POINTERS = ", ".join(name for name in RequestRow.model_fields if name.endswith("_label"))
_PAGE_END = f"SELECT id FROM request WHERE id > ? ORDER BY id LIMIT 1 OFFSET {_PAGE_ROWS - 1}"  # noqa: S608 - a number
_POINTED_AT = f"SELECT DISTINCT {_POINTERS} FROM request WHERE id > ? AND id <= ?"  # noqa: S608 - our own names
_COUNT = "SELECT count(*) FROM request WHERE id > ? AND id <= ?"
_IS_MANY = f"SELECT count(*) > {_FEW} FROM (SELECT 1 FROM label LIMIT {_FEW + 1})"  # noqa: S608 - a number
_LABELS = f"SELECT id FROM label WHERE id > ? AND id <= ? ORDER BY id LIMIT {_PIECE_LABELS}"  # noqa: S608 - a number
_LARGEST_ID = (1 << 63) - 1


class UnusedLabels:
    """Deletes them on a thread of the caller's own, who is asked to `pause` between pieces.

    Why none goes that a row points at: from before the first row is read until the last label is deleted, `labels`, by
    which alone rows get theirs, notes each number that it gives to a row. A row is either there when reading begins,
    and is read, or comes later, and its numbers are noted. What is deleted, `labels` forgets on the writer thread, in
    between two rows.
    """

    def __init__(self, database: Database, labels: Labels, pause: Callable[[float], object]) -> None:
        self._database = database
        self._labels = labels
        self._pause = pause
        self._rows: int | None = None
        self._gone_rows = 0

    def rows_went(self, count: int) -> None:
        """So many rows are deleted."""
        self._gone_rows += count

    def is_due(self, *, at_last: bool = False) -> bool:
        """Whether to look is worth it; `at_last` where nothing else can go."""
        if at_last and self._gone_rows:
            return True
        if self._rows is not None and self._gone_rows <= self._rows * _SHARE_GONE:
            return False
        with self._database.read() as session:
            return bool(session.connection().exec_driver_sql(_IS_MANY).scalar())

    def delete(self) -> int:
        """Delete them; how many there were. Raises DatabaseUnavailable."""
        self._write(lambda _: self._labels.note_given())
        try:
            count = sum(self._write(partial(self._labels.delete, numbers=some)) for some in self._found())
        finally:
            self._labels.note_no_more()
        _log.info("%d texts that no request has any more are deleted", count)
        return count

    def _found(self) -> Iterator[Sequence[int]]:
        last = self._last_label()
        is_used = bytearray(last + 1)
        self._gone_rows, self._rows = 0, self._mark(is_used)
        after = 0
        while True:
            with self._database.read() as session:
                page = list(session.connection().exec_driver_sql(_LABELS, (after, last)).scalars())
            if not page:
                return
            after = page[-1]
            if unused := [number for number in page if not is_used[number]]:
                yield unused
            self._pause(_PAUSE_SECONDS)

    def _last_label(self) -> int:
        with self._database.read() as session:
            return int(session.connection().exec_driver_sql("SELECT max(id) FROM label").scalar() or 0)

    def _mark(self, is_used: bytearray) -> int:
        """Mark what rows point at; how many rows there are."""
        after: int = -1
        rows = 0
        while True:
            with self._database.read() as session:
                run = session.connection().exec_driver_sql
                end = run(_PAGE_END, (after,)).scalar()
                span = (after, _LARGEST_ID if end is None else end)
                rows += run(_COUNT, span).scalar_one() if end is None else _PAGE_ROWS
                for pointers in run(_POINTED_AT, span):
                    for number in pointers:
                        # Labels from after the beginning are none of those that may go.
                        if number is not None and number < len(is_used):
                            is_used[number] = 1
            if end is None:
                return rows
            after = end
            self._pause(_PAUSE_SECONDS)

    def _write(self, work: Callable[[Session], T]) -> T:
        return self._database.submit(work).result()
