"""Instances side by side."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from app.cli.render import bytes_text

Instance = Mapping[str, Any]

_STYLES = {"ready": "green", "failed": "red"}
_NOTHING = "-"
_COLUMNS = (
    "profile", "state", "instance", "method", "speculates", "leases/queued", "memory: predicted/measured",
    "degradations", "since",
)  # fmt: skip


def instances_table(instances: Sequence[Instance], now: datetime) -> Table:
    """One row for each, as it stands at `now`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column in ("state", "instance"))
    for instance in instances:
        table.add_row(
            instance["profile_id"],
            _state(instance),
            instance["id"],
            instance["speculation"]["method"],
            _speculates(instance["speculation"]),
            f"{instance['leases']}/{instance['queued']}",
            _memory(instance["memory"]),
            Text(", ".join(instance["degradations"]) or _NOTHING, "yellow" if instance["degradations"] else ""),
            duration_text((now - _since(instance)).total_seconds()),
        )
    return table


def duration_text(seconds: float) -> str:
    """A time span as people say it, in its largest unit: 12 s, 5 min, 3 h, 2 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _state(instance: Instance) -> Text:
    state = str(instance["state"])
    said = state
    if state in ("failed", "stopped") and instance["reason"]:
        said = f"{state}: {instance['reason']}"
    load = instance.get("load_progress")
    if state == "loading" and load and load.get("fraction") is not None:
        said = f"{state} {load['fraction']:.0%}"
    return Text(said, style=_STYLES.get(state, ""))


def _speculates(speculation: Mapping[str, Any]) -> Text:
    if not speculation["asked"]:
        return Text(_NOTHING)
    return {True: Text("yes", "green"), False: Text("no", "red")}.get(speculation["active"], Text("?"))


def _memory(memory: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """Sums by device, a line for each that holds something; what was not measured is a dash."""
    predicted, measured = memory["predicted"], memory["measured"]
    lines = []
    for name in [*predicted, *(name for name in measured if name not in predicted)]:
        sums = [sum(side[name].values()) if name in side else None for side in (predicted, measured)]
        if any(sums):
            lines.append(f"{name} " + "/".join(_NOTHING if total is None else bytes_text(total) for total in sums))
    return "\n".join(lines) or _NOTHING


def _since(instance: Instance) -> datetime:
    """When it came into what it is: ended, ready, or begun."""
    moment = instance["stopped_at"] or instance["ready_at"] or instance["created_at"]
    return datetime.fromisoformat(moment)
