"""Small files of `/proc` and `/sys`: what is missing or damaged is None, never an error."""

from collections.abc import Mapping
from pathlib import Path

_BYTES_MAX = 1 << 20
_LIST_CHARACTERS_MAX = 4096
_LIST_SPAN_MAX = 8192


def read_text(path: Path) -> str | None:
    """The text of a small file, None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The one whole number that a file holds; None for `max` and everything else."""
    return whole_number(read_text(path))


def read_fields(path: Path) -> Mapping[str, str]:
    """Lines of a name and a value, with or without a colon between; empty where there are none."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.replace(":", " ", 1).partition(" ")
        if value:
            fields.setdefault(name.strip(), value.strip())
    return fields


def whole_number(text: str | None) -> int | None:
    """The number that a text is; None for anything else, and for what no counter can hold."""
    text = (text or "").strip()
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 20 else None


def number_list(text: str) -> frozenset[int]:
    """The numbers of a list such as `0-3,8`; empty where it is damaged."""
    numbers: set[int] = set()
    for part in text.strip()[:_LIST_CHARACTERS_MAX].split(","):
        first, _, last = part.partition("-")
        begin = whole_number(first)
        end = whole_number(last) if last else begin
        if begin is None or end is None or not 0 <= end - begin <= _LIST_SPAN_MAX:
            return frozenset()
        numbers.update(range(begin, end + 1))
    return frozenset(numbers)
