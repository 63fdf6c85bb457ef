"""Cells of the roll-ups: what is known of the requests of one context, category and outcome in one span of time."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlmodel import Session, col

from app.identifiers import IDS_PER_HOUR, first_id_at
from app.telemetry import histogram
from app.telemetry.histogram import Histogram
from app.telemetry.tables import RequestRow

# Context, category, outcome.
CellKey = tuple[int | None, int | None, int]
# Requests with a rate, their tokens after the first, and their microseconds.
Block = tuple[int, int, int]
# Blocks are of five minutes, in cells of several hours of an hour, and known by the number of their first five minutes
# since 1970. A bootstrap draws from them when rows are gone.
IDS_PER_BLOCK = first_id_at(300_000)
_BLOCKS_PER_HOUR = IDS_PER_HOUR // IDS_PER_BLOCK

SUMS = (
    "prompt_tokens", "cached_tokens", "generated_tokens", "draft_tokens", "accepted_tokens", "timed_tokens", "timed_us",
)  # fmt: skip
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


class Histograms(msgspec.Struct, array_like=True, frozen=True):
    """Those of a cell as it is kept. What stands behind them there is passed over."""

    rates: Histogram
    first_tokens: Histogram
    queues: Histogram

    def merge(self, more: "Histograms") -> None:
        """Count all that the others have counted."""
        histogram.merge(self.rates, more.rates)
        histogram.merge(self.first_tokens, more.first_tokens)
        histogram.merge(self.queues, more.queues)


class Measured(Histograms, array_like=True, frozen=True):
    """All that is kept of what was measured. `blocks` is empty in cells of before there were any."""

    blocks: dict[int, Block] = {}

    def add_block(self, number: int, block: Block) -> None:
        """Count what one has."""
        requests, tokens, microseconds = self.blocks.get(number, (0, 0, 0))
        self.blocks[number] = (requests + block[0], tokens + block[1], microseconds + block[2])

    def with_hours(self) -> "Measured":
        """The same with blocks of whole hours."""
        coarse = msgspec.structs.replace(self, blocks={})
        for number, block in self.blocks.items():
            coarse.add_block(number // _BLOCKS_PER_HOUR * _BLOCKS_PER_HOUR, block)
        return coarse


_encode = msgspec.msgpack.Encoder().encode
decode_histograms = msgspec.msgpack.Decoder(Histograms).decode
decode_measured = msgspec.msgpack.Decoder(Measured).decode


@dataclass(slots=True)
class Cell:
    """Counts, the sums of SUMS (None where nothing was reported), histograms of generation tokens/s, of microseconds to
    the first token and in the queue, and blocks of what has a rate.
    """

    requests: int = 0
    sums: list[int | None] = field(default_factory=lambda: [None] * len(SUMS))
    measured: Measured = field(default_factory=lambda: Measured({}, {}, {}, {}))

    def add(self, requests: int, sums: Sequence[int | None], measured: Measured) -> None:
        """Add what another cell has."""
        self.requests += requests
        self.sums = added(self.sums, sums)
        self.measured.merge(measured)
        for number, block in measured.blocks.items():
            self.measured.add_block(number, block)

    def count(self, identifier: int, values: Sequence[int | None]) -> None:
        """Add one request, of which `values` are those of COUNTED after the first three."""
        prompt, cached, generated, draft, accepted, generation_us, first_token_us, queue_us = values
        if draft is None or accepted is None:
            draft = accepted = None
        timed_tokens = timed_us = None
        if generated is not None and generation_us is not None and generated >= 2 and generation_us > 0:
            timed_tokens, timed_us = generated - 1, generation_us
            histogram.add(self.measured.rates, timed_tokens * 1e6 / timed_us)
            self.measured.add_block(identifier // IDS_PER_BLOCK, (1, timed_tokens, timed_us))
        if first_token_us is not None:
            histogram.add(self.measured.first_tokens, first_token_us)
        if queue_us is not None:
            histogram.add(self.measured.queues, queue_us)
        more = (prompt, cached, generated, draft, accepted, timed_tokens, timed_us)
        self.requests += 1
        self.sums = added(self.sums, more)


Cells = dict[CellKey, Cell]


def count_row(cells: Cells, identifier: int, values: Sequence[Any]) -> None:
    """Add one row, the values of COUNTED, to its cell."""
    cells.setdefault((values[0], values[1], values[2]), Cell()).count(identifier, values[3:])


def merged(parts: Iterable[Cells]) -> Cells:
    """Cells of one span from those of its parts."""
    cells: Cells = {}
    for part in parts:
        for key, cell in part.items():
            cells.setdefault(key, Cell()).add(cell.requests, cell.sums, cell.measured)
    return cells


def read_cells(
    session: Session, hours: int, first_hour: int, end_hour: int, breathe: Callable[[], object] = lambda: None
) -> Cells:
    """The cells of these spans together: those of so many `hours` that begin in [first_hour, end_hour).

    `breathe` is called now and then, where the caller is in nobody's way for so long.
    """
    cells: Cells = {}
    found = session.connection().exec_driver_sql(_READ, (hours, first_hour, end_hour))
    with closing(found):  # a statement that is left half way keeps its connection at this moment
        while some := found.fetchmany(_BREATH_CELLS):
            for context, category, outcome, requests, packed, *sums in some:
                cells.setdefault((context, category, outcome), Cell()).add(requests, sums, decode_measured(packed))
            breathe()
    return cells


def packed_cells(
    hours: int, first_hour: int, cells: Cells, breathe: Callable[[], object] = lambda: None
) -> list[tuple[Any, ...]]:
    """Rows of `request_rollup` for `write_cells`."""
    rows = []
    for number, ((context, category, outcome), cell) in enumerate(cells.items()):
        packed = _encode(cell.measured if hours == 1 else cell.measured.with_hours())
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
