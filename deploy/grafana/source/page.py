"""The dashboards drawn as text: what they show, for whoever has no Grafana to look through."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

_Panel = Mapping[str, Any]
# A column of Grafana's 24 is so many characters wide.
_CHARACTERS: Final = 4
_KINDS: Final = {"timeseries": "graph", "stat": "number", "bargauge": "bars"}
_UNITS: Final = {
    "percentunit": "%", "bytes": "bytes", "Bps": "bytes/s", "s": "seconds", "watt": "watts", "celsius": "°C",
    "short": "count", "reqps": "requests/s", "suffix: x": "times",
}  # fmt: skip
_INTRODUCTION: Final = """# Dashboards

<!-- Made by `make dashboards`: change deploy/grafana/source instead. -->

What the [dashboards](deployment.md#dashboards) of `deploy/grafana` show, as they lie on the screen, with the query
behind each line: Prometheus' own page shows the same. `$profile`, `$category` and `$device` are what is chosen above a
dashboard (`.*` for all), `$baseline` is one profile that does not speculate, `$__rate_interval` a minute or more, and
`$__range` all of the time shown. Series are on the [page of metrics](metrics.md).
"""


def page(dashboards: Mapping[str, str]) -> str:
    """The whole page, as Markdown, from the JSON of the dashboards by the names of their files."""
    parts = [line for text in dashboards.values() for line in _dashboard(json.loads(text))]
    return "\n".join([_INTRODUCTION, *parts]).rstrip("\n") + "\n"


def _dashboard(board: Mapping[str, Any]) -> Iterator[str]:
    chosen = ", ".join(f"{each['label'].lower()} (`${each['name']}`)" for each in board["templating"]["list"])
    yield f"## {board['title'].removeprefix('Paceline: ').capitalize()}\n\n{board['description']} Choices: {chosen}.\n"
    yield "```text"
    for _, line in groupby(board["panels"], key=lambda panel: panel["gridPos"]["y"]):
        yield from _drawn(list(line))
    yield "```\n"
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield f"### {board['title'].removeprefix('Paceline: ').capitalize()}: {panel['title'].rstrip('?')}\n"
        else:
            yield from _told(panel)


def _drawn(line: Sequence[_Panel]) -> Iterator[str]:
    """One line of panels, side by side; a heading stands alone."""
    if line[0]["type"] == "row":
        yield line[0]["title"]
        return
    boxes = [_box(panel) for panel in line]
    height = max(len(box) for box in boxes)
    filled = [[*box, *[" " * len(box[0])] * (height - len(box))] for box in boxes]
    yield "".join(f"┌{'─' * len(box[0])}┐" for box in filled)
    for texts in zip(*filled, strict=True):
        yield "".join(f"│{text}│" for text in texts)
    yield "".join(f"└{'─' * len(box[0])}┘" for box in filled)


def _box(panel: _Panel) -> list[str]:
    width = panel["gridPos"]["w"] * _CHARACTERS - 2
    lines = [line for text in (panel["title"], _kind(panel)) for line in textwrap.wrap(text, width - 2)]
    return [f" {line}".ljust(width) for line in lines]


def _kind(panel: _Panel) -> str:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return f"[{_KINDS[panel['type']]}, {_UNITS.get(unit, unit.removeprefix('suffix: '))}]"


def _told(panel: _Panel) -> Iterator[str]:
    yield f"**{panel['title']}.** {panel['description']}\n"
    for target in panel["targets"]:
        yield f"- `{target['legendFormat']}`: `{target['expr']}`"
    yield ""
