"""Groups of GET /stats side by side, and what is said of their speed-ups. Values of the API in, text out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Item = Mapping[str, Any]

_NOTHING = "-"
_VERDICTS = {True: ("yes", "green"), False: ("no", "red"), None: ("cannot be told", "yellow")}
_COLUMNS = ("requests", "tokens/s", "acceptance\nrate", "median\nfirst token", "speed-up")
# On a narrow terminal longer names of groups are broken.
_NAME_WIDTH = 16


def stats_table(items: Sequence[Item], group_by: Sequence[str]) -> Table:
    """One row for each; the names of `group_by` are the first columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in group_by:
        longest = max(len(_text(item[name])) for item in items)
        table.add_column(name, overflow="fold", no_wrap=longest <= _NAME_WIDTH)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column != "speed-up")
    for item in items:
        table.add_row(
            *(_text(item[name]) for name in group_by),
            str(item["requests"]),
            _rate(item["generation_tokens_per_second"]),
            _NOTHING if item["acceptance_rate"] is None else f"{item['acceptance_rate']:.0%}",
            _median(item["time_to_first_token_seconds"]),
            _gain(item["speedup"]),
        )
    return table


def print_verdicts(console: Console, items: Sequence[Item], group_by: Sequence[str]) -> None:
    """Whether speculation pays, a line for each that has speculated; nothing where none has.

    `group_by` has the profile: without it no group has an answer.
    """
    told = [item for item in items if item["speedup"] is not None or item.get("method") not in (None, "none")]
    if told:
        console.print("\ndoes speculation pay?", style="bold")
    for item in told:
        name = ", ".join(_text(item[name]) for name in group_by)
        console.print(Text(f"  {name}: ").append_text(verdict(item["speedup"])), soft_wrap=True)


def verdict(speedup: Item | None) -> Text:
    """Whether speculation pays, against what, and what is not alike. None is of requests without a rate."""
    if speedup is None:
        return Text("cannot be told: no answer had its tokens and their time", style="yellow")
    word, style = _VERDICTS[speedup["pays"]]
    said = [f"{word}{_beside(speedup)}{_why_not_told(speedup)}"]
    if speedup["differences"]:
        said.append(f"differs in: {', '.join(speedup['differences'])}")
    if speedup["reason"] is None and speedup["not_compared"]:
        said.append(f"too few requests to count: {', '.join(speedup['not_compared'])}")
    return Text("; ".join(said), style=style)


def _beside(speedup: Item) -> str:
    if not speedup["baselines"]:
        return ""
    # Counted, since they are of any time, whatever was asked for.
    count = f" ({speedup['baseline_requests']} requests)" if speedup["reason"] is None else ""
    return f", against {', '.join(speedup['baselines'])}{count}"


def _why_not_told(speedup: Item) -> str:
    if speedup["reason"] == "no-baseline":
        return ": nothing of the same target was recorded without speculation"
    if speedup["reason"] is not None:
        counts = _counts(speedup["not_compared"].items())
        return f": too few requests of a kind, 5 are needed on each side{f' ({counts})' if counts else ''}"
    if speedup["pays"] is None:
        return ": the interval holds 1" if speedup["interval"] else ": there is no interval"
    return ""


def _counts(categories: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    return ", ".join(f"{name}: {found['requests']} and {found['baseline_requests']}" for name, found in categories)


def _text(value: object) -> str:
    return _NOTHING if value is None else str(value)


def _gain(speedup: Item | None) -> str:
    if speedup is None or speedup["speedup"] is None:
        return _NOTHING
    interval = speedup["interval"]
    shown = f" ({interval['low']:.2f} to {interval['high']:.2f})" if interval else ""
    return f"{speedup['speedup']:.2f}{shown}"


def _rate(rates: Mapping[str, float] | None) -> str:
    return _NOTHING if rates is None else f"{rates['overall']:.1f}"


def _median(percentiles: Mapping[str, float] | None) -> str:
    if percentiles is None:
        return _NOTHING
    seconds = percentiles["p50"]
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
