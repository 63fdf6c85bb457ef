"""Cells of the roll-ups: what is known of the requests of one context, category and outcome in one span of time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlmodel import Session, col

from app.telemetry import histogram
from app.telemetry.histogram import Histogram
from app.telemetry.tables import RequestRow

# Context, category, outcome.
CellKey = tuple[int | None, int | None, int]

SUMS = (
    "prompt_tokens", "cached_tokens", "generated_tokens", "draft_tokens", "accepted_tokens", "timed_tokens", "timed_us",
)  # fmt: skip
RATES, FIRST_TOKENS, QUEUES = range(3)
# What `Cell.count` reads of a row, in this order.
COUNTED = tuple(
    col(getattr(RequestRow, name))
    for name in (
        "context_id category_code outcome_code prompt_tokens cached_tokens generated_tokens draft_tokens "
        "accepted_tokens generation_us time_to_first_token_us queue_us"
    ).split()
)

_COLUMNS = f"context_id, category_code, outcome_code, requests, histograms, {', '.join(SUMS)}"
# Plain SQL, since the event loop waits for whatever Python does here.
_READ = f"SELECT {_COLUMNS} FROM request_rollup WHERE hours = ? AND first_hour >= ? AND first_hour < ?"  # noqa: S608
_DELETE = "DELETE FROM request_rollup WHERE hours = ? AND first_hour = ?"
_INSERT = (
    f"INSERT INTO request_rollup (hours, first_hour, {_COLUMNS}) "  # noqa: S608 - nothing here comes from outside
    f"VALUES ({', '.join('?' * (7 + len(SUMS)))})"
)
_BREATH_CELLS = 30

_encode = msgspec.msgpack.Encoder().encode
decode_histograms = msgspec.msgpack.Decoder(tuple[Histogram, Histogram, Histogram]).decode


@dataclass(slots=True)
class Cell:
    """Counts, the sums of SUMS (None where nothing was reported), and histograms of generation tokens/s, of
    microseconds to the first token, and of microseconds in the queue.
    """

    requests: int = 0
    sums: list[int | None] = field(default_factory=lambda: [None] * len(SUMS))
    histograms: tuple[Histogram, Histogram, Histogram] = field(default_factory=lambda: ({}, {}, {}))

    def add(self, requests: int, sums: Sequence[int | None], histograms: Iterable[Mapping[int, int]]) -> None:
        """Add what another cell has."""
        self.requests += requests
        self.sums = added(self.sums, sums)
        histogram.merge_each(self.histograms, histograms)

    def count(self, values: Sequence[int | None]) -> None:
        """Add one request, of which `values` are those of COUNTED after the first three."""
        prompt, cached, generated, draft, accepted, generation_us, first_token_us, queue_us = values
        if draft is None or accepted is None:
            draft = accepted = None
        timed_tokens = timed_us = None
        if generated is not None and generation_us is not None and generated >= 2 and generation_us > 0:
            timed_tokens, timed_us = generated - 1, generation_us
            histogram.add(self.histograms[RATES], timed_tokens * 1e6 / timed_us)
        if first_token_us is not None:
            histogram.add(self.histograms[FIRST_TOKENS], first_token_us)
        if queue_us is not None:
            histogram.add(self.histograms[QUEUES], queue_us)
        more = (prompt, cached, generated, draft, accepted, timed_tokens, timed_us)
        self.requests += 1
        self.sums = added(self.sums, more)


Cells = dict[CellKey, Cell]


def count_row(cells: Cells, values: Sequence[Any]) -> None:
    """Add one row, the values of COUNTED, to its cell."""
    cells.setdefault((values[0], values[1], values[2]), Cell()).count(values[3:])


def merged(parts: Iterable[Cells]) -> Cells:
    """Cells of one span from those of its parts."""
    cells: Cells = {}
    for part in parts:
        for key, cell in part.items():
            cells.setdefault(key, Cell()).add(cell.requests, cell.sums, cell.histograms)
    return cells


def read_cells(
    session: Session, hours: int, first_hour: int, end_hour: int, breathe: Callable[[], object] = lambda: None
) -> Cells:
    """The cells of these spans together: those of so many `hours` that begin in [first_hour, end_hour).

    `breathe` is called now and then, where the caller is in nobody's way for so long.
    """
    cells: Cells = {}
    found = session.connection().exec_driver_sql(_READ, (hours, first_hour, end_hour))
    while some := found.fetchmany(_BREATH_CELLS):
        for context, category, outcome, requests, packed, *sums in some:
            cells.setdefault((context, category, outcome), Cell()).add(requests, sums, decode_histograms(packed))
        breathe()
    return cells


def packed_cells(
    hours: int, first_hour: int, cells: Cells, breathe: Callable[[], object] = lambda: None
) -> list[tuple[Any, ...]]:
    """Rows of `request_rollup` for `write_cells`."""
    rows = []
    for number, ((context, category, outcome), cell) in enumerate(cells.items()):
        packed = _encode(cell.histograms)
        rows.append((hours, first_hour, context, category, outcome, cell.requests, packed, *cell.sums))
        if number % _BREATH_CELLS == 0:
            breathe()
    return rows


def write_cells(session: Session, hours: int, first_hour: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Put these packed cells in the place of whatever there is of that span."""
    run = session.connection().exec_driver_sql
    run(_DELETE, (hours, first_hour))
    if rows:
        run(_INSERT, list(rows))


def added(sums: Sequence[int | None], more: Sequence[int | None]) -> list[int | None]:
    """Each sum with what comes to it; None where neither is known."""
    return [known if new is None else new + (known or 0) for known, new in zip(sums, more, strict=True)]
