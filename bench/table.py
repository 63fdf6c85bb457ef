"""The one table: a line for each figure, with what each server took, the budget, and whether it is kept."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_NAME_WIDTH, _FIGURE_WIDTH = 70, 23
DIRECT, NGINX, PACELINE = "direct", "nginx", "paceline"


@dataclass(frozen=True)
class Line:
    """One figure: `values` by server and in `unit`; the figure that is judged, with what it is of; at most how much.

    `figure` is None where it cannot be known, `most` where there is no budget.
    """

    name: str
    unit: str
    values: Mapping[str, float]
    figure: float | None = None
    of: str = ""
    most: float | None = None

    @property
    def verdict(self) -> str:
        """Empty where there is no budget, `?` where it cannot be judged."""
        if self.most is None:
            return ""
        if self.figure is None:
            return "?"
        return "ok" if self.figure <= self.most else "OVER"


@dataclass
class Table:
    """Prints each line when it is there; `columns` are the servers."""

    columns: Sequence[str]
    lines: list[Line] = field(default_factory=list)

    def begin(self) -> None:
        """Print the head."""
        columns = "".join(f"{column:>10}" for column in self.columns)
        print(f"{'':<{_NAME_WIDTH}}{'':>4}{columns}{self.tail_head}", flush=True)

    def add(self, line: Line) -> None:
        """Print a line, and keep its verdict."""
        self.lines.append(line)
        values = "".join(f"{number(line.values[name]) if name in line.values else '':>10}" for name in self.columns)
        told(None)
        print(f"{line.name:<{_NAME_WIDTH}}{line.unit:>4}{values}{self.tail(line)}".rstrip(), flush=True)

    @property
    def tail_head(self) -> str:
        """What stands above the tails."""
        return f"  {'figure':<{_FIGURE_WIDTH}}{'budget':>7}"

    def tail(self, line: Line) -> str:
        """What is said of a line behind the values."""
        figure = "" if line.figure is None else f"{number(line.figure)}{line.of}"
        budget = "" if line.most is None else f"{line.most:g}"
        return f"  {figure:<{_FIGURE_WIDTH}}{budget:>7}  {line.verdict}"

    @property
    def is_within(self) -> bool:
        """Whether every budget is known to be kept."""
        return all(line.verdict in ("", "ok") for line in self.lines)


def number(value: float) -> str:
    """Three digits, or all before the point."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def told(what: str | None) -> None:
    """Say on a terminal what is being measured; None takes it away."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what or ''}")
        sys.stderr.flush()
