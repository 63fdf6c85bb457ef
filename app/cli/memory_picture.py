"""The memory of a report as a picture: a bar for each device and the host, what lies there, and the figures.

Every part has a letter as well as a colour, so it reads the same in a pipe. Values of the API in, lines out.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from rich.console import Console
from rich.text import Text

from app.cli import memory_bars as bars
from app.cli.memory_bars import Place
from app.cli.placed_layers import contents

_PIPE_WIDTH = 80
_LARGEST_WIDTH = 120
_LEAST_COLUMNS = 10
_NAME_LIMIT = 16
_LABELS = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "recurrent_state": "recurrent state",
    "compute": "compute",
    "draft_weights": "draft weights",
    "draft_kv_cache": "draft KV cache",
    "draft_compute": "draft compute",
    "projector": "projector",
    "host_caches": "prompt caches",
    "overhead": "overhead",
}
# Colours that colour-blind eyes tell apart (after Okabe and Ito), each with letters that can be read on it.
_STYLES = {
    "W": "#ffffff on #0072b2",
    "K": "#000000 on #56b4e9",
    "S": "#000000 on #a6cee3",
    "C": "#000000 on #cc79a7",
    "D": "#000000 on #2bb58a",
    "P": "#000000 on #f0e442",
    "H": "#000000 on #e69f00",
    "O": "#000000 on #b0a080",
    "X": "#000000 on #e0e0e0",
    bars.OTHERS: "#d0d0d0 on #505050",
    bars.RESERVED: "#d0d0d0 on #705070",
    bars.MARGIN: "#c0c0c0 on #303030",
    bars.FREE: "dim",
    bars.UNKNOWN: "dim",
    bars.OVER: "bold #ffffff on #c00000",
}
_Row: TypeAlias = tuple[str, str, Callable[[Place], int | None]]
_SOURCES = {"engine": "by the engine's own dry run", "analytic": "estimated from the files"}


def print_memory(console: Console, report: Mapping[str, Any]) -> None:
    """The picture, as wide as the terminal; elsewhere 80 columns wide. Nothing where nothing was planned."""
    for line in memory_lines(report, console.width if console.is_terminal else _PIPE_WIDTH):
        console.print(line, soft_wrap=True)


def memory_lines(report: Mapping[str, Any], width: int) -> list[Text]:
    """The lines of the picture, none longer than `width` columns (from 40 up)."""
    width = min(width, _LARGEST_WIDTH)
    devices = [bars.device_place(device) for device in report["devices"] if "terms" in device]
    host = [bars.host_place(report["host"])] if "terms" in report["host"] else []
    if not any(place.required_bytes for place in [*devices, *host]):
        return []
    source = _SOURCES.get(report["estimate_source"], report["estimate_source"])
    scale = "; the host's bar has its own scale" if devices and host else ""
    lines = _wrapped(f"memory in GiB, {source}{scale}", width, indent=0, style="bold")
    for what in report["partial"]:
        lines += _wrapped(f"partial: {what}", width, indent=2, style="yellow")
    return [*lines, Text(), *_bars(report, devices, host, width), *_figures([*devices, *host], width)]


def gib(n_bytes: int) -> str:
    """GiB with two decimals and without the unit. What is more than nothing never reads as nothing."""
    size = n_bytes / (1 << 30)
    return "<0.01" if 0 < size < 0.005 else f"{size:.2f}"


def _bars(report: Mapping[str, Any], devices: Sequence[Place], host: Sequence[Place], width: int) -> Iterator[Text]:
    places = [*devices, *host]
    names = max(len(_name(place)) for place in places)
    sayings = [_room(place) for place in places]
    said = max(len(saying) for saying in sayings)
    columns = max(_LEAST_COLUMNS, width - names - said - len(" [] "))
    scales = [bars.common_scale(devices)] * len(devices) + [bars.common_scale(host)] * len(host)
    for place, saying, scale in zip(places, sayings, scales, strict=True):
        drawn = bars.bar(place, scale, columns)
        line = Text(f"{_name(place):<{names}} [")
        for letter, count in drawn.inside:
            line.append(letter * count, _STYLES[letter])
        line.append("]").append(drawn.over, _over_style(place))
        line.append(" " * (columns - drawn.width + 1)).append(saying.rjust(said), _room_style(place))
        yield line
        if what := contents(report, place):
            yield from _wrapped(what, width, indent=names + 2)
    yield Text()


def _figures(places: Sequence[Place], width: int) -> Iterator[Text]:
    """The legend: a row for each part, a column for each place, in as many tables as the width asks for."""
    labels = max(len(label) for _, label, _ in _rows(places)) + len("W ")
    for shown in _side_by_side(places, width - labels):
        yield Text(" " * labels + "".join(_name(place).rjust(_cell(place)) for place in shown), "bold")
        for letter, label, figure in _rows(shown):
            line = Text().append(letter or " ", _STYLES.get(letter)).append(f" {label}".ljust(labels - 1))
            line.append("".join(_figure(figure(place)).rjust(_cell(place)) for place in shown))
            if not letter:
                line.stylize("bold")
            yield line
        yield Text()


def _side_by_side(places: Sequence[Place], width: int) -> Iterator[Sequence[Place]]:
    """The places in groups whose columns fit beside one another."""
    group: list[Place] = []
    for place in places:
        if group and sum(map(_cell, [*group, place])) > width:
            yield group
            group = []
        group.append(place)
    yield group


def _cell(place: Place) -> int:
    return max(len("  1023.99"), len(_name(place)) + 2)


def _figure(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "?"
    return gib(n_bytes) if n_bytes else "-"


def _rows(places: Sequence[Place]) -> list[_Row]:
    """The rows that say anything of these places."""
    total = " / ".join(dict.fromkeys("available" if place.name == bars.HOST else "total" for place in places))
    terms = dict.fromkeys([*bars.TERM_LETTERS, *(term for place in places for term in place.terms)])
    rows: list[_Row] = [
        (bars.letter_of(term), _LABELS.get(term, term.replace("_", " ")), partial(_term_bytes, term)) for term in terms
    ]
    rows += [
        ("", "required", lambda at: at.required_bytes),
        (" ", "of it mapped", lambda at: at.mapped_bytes),
        (bars.MARGIN, "margin", lambda at: at.kept_bytes),
        (bars.RESERVED, "reserved", lambda at: at.reserved_bytes),
        (bars.OTHERS, "used by others", lambda at: at.others_bytes),
        (bars.FREE, "free", lambda at: None if at.left_bytes is None else max(0, at.left_bytes)),
        (bars.OVER, "too much", lambda at: at.over_bytes),
        ("", total, lambda at: at.total_bytes),
    ]
    return [row for row in rows if any(row[2](place) != 0 for place in places)]


def _term_bytes(term: str, place: Place) -> int:
    return place.terms.get(term, 0)


def _room(place: Place) -> str:
    if place.left_bytes is None:
        return "memory not known"
    if not place.required_bytes:
        return "not used"
    return f"{gib(place.over_bytes)} GiB too much" if place.over_bytes else f"{gib(place.left_bytes)} GiB left"


def _room_style(place: Place) -> str:
    if place.left_bytes is None:
        return "yellow"
    if not place.required_bytes:
        return "dim"
    return ("bold red" if place.lacks_memory else "yellow") if place.over_bytes else "green"


def _over_style(place: Place) -> str:
    return _STYLES[bars.OVER] if place.lacks_memory else "bold #000000 on #e0c000"


def _name(place: Place) -> str:
    """Long names keep both ends: those of RPC servers differ at the end."""
    name = place.name
    return name if len(name) <= _NAME_LIMIT else f"{name[:4]}..{name[6 - _NAME_LIMIT :]}"


def _wrapped(text: str, width: int, *, indent: int, style: str = "") -> list[Text]:
    blank = " " * indent
    lines = textwrap.wrap(text, width, initial_indent=blank, subsequent_indent=blank, break_on_hyphens=False)
    return [Text(line, style) for line in lines]
