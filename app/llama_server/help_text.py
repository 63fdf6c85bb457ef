"""What `--help` and `--list-devices` print, as values. Pure; the layout is that of llama.cpp's own parser."""

import re
from collections.abc import Iterator

from app.inventory.devices import Device
from app.inventory.engine import EngineFlag

_TEXT_COLUMN = 40
_NAME = re.compile(r"-{1,2}[A-Za-z0-9][A-Za-z0-9_.-]*")
_REMOVED = "argument has been removed"
_DEVICE = re.compile(r"^\s+(?P<name>[^\s:]+): (?P<description>.*) \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)$")


def parse_flags(help_text: str) -> dict[str, EngineFlag]:
    """Every spelling of every flag in the output of `--help`.

    Flags that are listed only to say that they were removed are kept, with that text: see `is_removed`.
    """
    flags: dict[str, EngineFlag] = {}
    for entry in _entries(help_text):
        flag = _parse_entry(entry)
        if flag is not None:
            flags.update(dict.fromkeys(flag.names, flag))
    return flags


def is_removed(flag: EngineFlag) -> bool:
    """Whether the engine lists the flag only to refuse it."""
    return _REMOVED in flag.text


def parse_spec_types(flags: dict[str, EngineFlag], help_text: str) -> frozenset[str]:
    """The values that `--spec-type` takes in this build; empty where it has no such flag."""
    if "--spec-type" not in flags:
        return frozenset()
    match = re.search(r"^--spec-type\s+\[?<?([a-z0-9,|-]+)", help_text, re.MULTILINE)
    return frozenset(re.split(r"[,|]", match.group(1))) if match else frozenset()


def parse_devices(listing: str) -> tuple[Device, ...]:
    """The devices of `--list-devices`, in the engine's order, memory in bytes.

    Of a name that stands there twice the first counts, which is the one that `--device` finds.
    """
    found = (_DEVICE.match(line) for line in listing.splitlines())
    devices: dict[str, Device] = {}
    for match in found:
        if match:
            device = Device(
                name=match["name"],
                description=match["description"],
                total_bytes=int(match["total"]) << 20,
                free_bytes=int(match["free"]) << 20,
            )
            devices.setdefault(device.name, device)
    return tuple(devices.values())


def _entries(help_text: str) -> Iterator[list[str]]:
    """Groups of lines: one that begins with `-`, and the indented ones after it."""
    entry: list[str] = []
    for line in help_text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            if entry:
                yield entry
            entry = [line]
        elif line.startswith(" ") and entry:
            entry.append(line)
        elif entry:
            yield entry
            entry = []
    if entry:
        yield entry


def _parse_entry(lines: list[str]) -> EngineFlag | None:
    first = lines[0]
    names = []
    position = 0
    while match := _NAME.match(first, position):
        names.append(match.group())
        position = match.end()
        separator = re.compile(r",\s*").match(first, position)
        if separator is None:
            break
        position = separator.end()
    if not names:
        return None
    rest = first[position:]
    # One space, then a value hint; a name that ends right before the text column has one space too.
    takes_value = bool(re.match(r" \S", rest)) and position + 1 != _TEXT_COLUMN
    text = " ".join([*rest.split("  ")[1:], *(line.strip() for line in lines[1:])])
    return EngineFlag(tuple(names), takes_value, text.strip())
