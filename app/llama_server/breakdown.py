"""The memory breakdown that the engine prints of a launch it measures, and what its output says around it. Pure.

With `--fit on` the engine measures the launch before it loads a weight: the target, then the draft model or the MTP
context (the "extra model" of its log); only then it compares with the free memory and may try other layouts.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes of one device or of the host. The engine prints whole MiB, rounded down."""

    model_bytes: int = 0
    context_bytes: int = 0
    compute_bytes: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.model_bytes + other.model_bytes,
            self.context_bytes + other.context_bytes,
            self.compute_bytes + other.compute_bytes,
        )


@dataclass(frozen=True, slots=True)
class Breakdown:
    """What one model and its context take.

    `devices` in the engine's order; `buffer_types` are the rows that no device accounts for, such as `CPU_REPACK`,
    the weights that are rearranged for the processor and are missing from the host's own row.
    """

    devices: Mapping[str, Figures]
    host_row: Figures = Figures()
    buffer_types: Mapping[str, Figures] = field(default_factory=dict)

    @property
    def host(self) -> Figures:
        """The host's row and the buffer types that lie in host memory too."""
        # A bracket tells a buffer type of an RPC server: `RPC0[address]`.
        return sum((figures for name, figures in self.buffer_types.items() if "[" not in name), self.host_row)


def read_line(line: str) -> tuple[str, Breakdown | None]:
    """One line of output as text with the engine's time stamp, and the breakdown where it is one.

    Understands the records of `--log-jsonl`; anything else is text already.
    """
    if not line.startswith("{"):
        return line, None
    try:
        record = json.loads(line)
        match record:
            case {"type": "log", "msg": str(message)}:
                return _stamped(record, message.rstrip("\n")), None
            case {"type": "fit_memory_breakdown", "data": {"unit": "MiB", "rows": list(rows)}}:
                return "", _breakdown((row["kind"], row["name"], _figures(row)) for row in rows)
    except (ValueError, TypeError, KeyError):
        pass
    return line, None


def _stamped(record: Mapping[str, Any], message: str) -> str:
    microseconds = int(record.get("time", 0))
    seconds, rest = divmod(microseconds, 1_000_000)
    stamp = f"{seconds // 60}.{seconds % 60:02}.{rest // 1000:03}.{rest % 1000:03}"
    return f"{stamp} {str(record.get('level', 'info'))[:1].upper()} {message}"


def _figures(row: Mapping[str, Any]) -> Figures:
    return Figures(int(row["model"]) * _MIB, int(row["context"]) * _MIB, int(row["compute"]) * _MIB)


def _breakdown(rows: Iterable[tuple[str, str, Figures]]) -> Breakdown:
    devices: dict[str, Figures] = {}
    buffer_types: dict[str, Figures] = {}
    host = Figures()
    for kind, name, figures in rows:
        if kind == "device":
            devices[name] = figures
        elif kind == "host":
            host = figures
        else:
            buffer_types[name] = figures
    # A tensor that was moved by name to a device outside the launch's list is told by its buffer type.
    return Breakdown(devices, host, buffer_types)


_TABLE_HEAD = "| memory breakdown [MiB]"
_TABLE_ROW = re.compile(
    r"\|   - (?P<name>\S+)(?P<device> \(.*\))? +\| .*= +(?P<model>\d+) \+ +(?P<context>\d+) \+ +(?P<compute>\d+)"
)


def read_tables(lines: Iterable[str]) -> Sequence[Breakdown]:
    """Every breakdown in the text tables of `--verbosity 4`: also the one that a server prints when it ends."""
    return list(map(_breakdown, _tables(lines)))


def _tables(lines: Iterable[str]) -> Iterator[list[tuple[str, str, Figures]]]:
    rows: list[tuple[str, str, Figures]] | None = None
    for line in lines:
        row = _TABLE_ROW.search(line)
        if _TABLE_HEAD in line or row is None:
            if rows:
                yield rows
            rows = [] if _TABLE_HEAD in line else None
        elif rows is not None:
            kind = "device" if row["device"] else "host" if row["name"] == "Host" else "buffer_type"
            rows.append((kind, row["name"], _figures(row.groupdict())))
    if rows:
        yield rows
