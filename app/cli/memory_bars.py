"""Bars of memory: bytes by purpose in, columns out. No text of a report, no colour."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OTHERS, RESERVED, MARGIN, FREE, OVER, UNKNOWN, OTHER_TERM = "u", "r", "m", ".", "!", "?", "X"
# The parts of a draft share a letter: a bar has few columns, the figures below it tell them apart.
TERM_LETTERS: Final[Mapping[str, str]] = {
    "weights": "W",
    "kv_cache": "K",
    "recurrent_state": "S",
    "compute": "C",
    "draft_weights": "D",
    "draft_kv_cache": "D",
    "draft_compute": "D",
    "projector": "P",
    "host_caches": "H",
    "overhead": "O",
}
HOST: Final = "host"
_CUT = ">"


@dataclass(frozen=True, slots=True)
class Place:
    """A device or the host, as a report has it. `total_bytes` is None where its memory is not known.

    Of the host only what is available is known, so nothing of it is used by others. `mapped_bytes` of its weights can
    be read from their files again.
    """

    name: str
    total_bytes: int | None
    others_bytes: int
    reserved_bytes: int
    margin_bytes: int
    terms: Mapping[str, int]
    mapped_bytes: int = 0

    @property
    def required_bytes(self) -> int:
        """What the launch takes of it."""
        return sum(self.terms.values())

    @property
    def kept_bytes(self) -> int:
        """The margin; none where the launch takes nothing."""
        return self.margin_bytes if self.required_bytes else 0

    @property
    def claimed_bytes(self) -> int:
        """All that is spoken for."""
        return self.others_bytes + self.reserved_bytes + self.required_bytes + self.kept_bytes

    @property
    def left_bytes(self) -> int | None:
        """What stays free; negative where it does not fit, None where that is not known."""
        return None if self.total_bytes is None else self.total_bytes - self.claimed_bytes

    @property
    def over_bytes(self) -> int:
        """What the launch wants beyond its end. A place that gets nothing is never too full."""
        return max(0, -(self.left_bytes or 0)) if self.required_bytes else 0

    @property
    def lacks_memory(self) -> bool:
        """Whether it is over by more than what can be read from files again."""
        return self.over_bytes > self.mapped_bytes

    @property
    def extent_bytes(self) -> int:
        """How far its bar reaches, the part past its end included."""
        return self.claimed_bytes if self.total_bytes is None else self.total_bytes + self.over_bytes


@dataclass(frozen=True, slots=True)
class Bar:
    """Columns of one bar. `inside` are letters with how many columns each has; `over` stands past the end."""

    inside: Sequence[tuple[str, int]]
    over: str = ""

    @property
    def width(self) -> int:
        """Columns without the two brackets."""
        return sum(count for _, count in self.inside) + len(self.over)


def letter_of(term: str) -> str:
    """The letter of a term of a report."""
    return TERM_LETTERS.get(term, OTHER_TERM)


def device_place(device: Mapping[str, Any]) -> Place:
    """A device of a report."""
    free_bytes = device["free_bytes"] or 0
    # A device that shares the host's memory may have a free figure and no total.
    total_bytes = max(device["total_bytes"] or 0, free_bytes)
    return Place(
        name=device["name"],
        total_bytes=total_bytes or None,
        others_bytes=total_bytes - free_bytes,
        reserved_bytes=max(0, device.get("reserved_bytes") or 0),
        margin_bytes=max(0, device.get("margin_bytes") or 0),
        terms=_terms(device),
    )


def host_place(host: Mapping[str, Any]) -> Place:
    """The host of a report."""
    return Place(
        name=HOST,
        total_bytes=host["available_bytes"],
        others_bytes=0,
        reserved_bytes=max(0, host.get("reserved_bytes") or 0),
        margin_bytes=0,
        terms=_terms(host),
        mapped_bytes=host.get("mapped_bytes") or 0,
    )


def common_scale(places: Iterable[Place]) -> int:
    """The bytes that a whole line of columns stands for: the largest total, and room past the ends that are passed.

    Never more than half as much again: one hopeless device must not make all others too small to read.
    """
    known = list(places)
    largest = max((place.total_bytes or 0 for place in known), default=0)
    extent = max((place.extent_bytes for place in known), default=0)
    return min(extent, largest * 3 // 2) if largest else extent * 5 // 4


def bar(place: Place, scale_bytes: int, columns: int) -> Bar:
    """The bar of one place, at most `columns` (at least 2) wide."""
    parts = _parts(place)
    if place.total_bytes is None:
        widths = shares([*(size for _, size in parts), max(1, scale_bytes - place.claimed_bytes)], columns)
        return Bar(list(zip([*(letter for letter, _ in parts), UNKNOWN], widths, strict=True)))
    over_bytes = place.over_bytes
    inside = min(_scaled(place.total_bytes, scale_bytes, columns), columns - 1 if over_bytes else columns)
    fitting, room_bytes = [], place.total_bytes
    for letter, size in parts:
        fitting.append((letter, min(size, room_bytes)))
        room_bytes -= fitting[-1][1]
    fitting.append((FREE, room_bytes))
    widths = shares([size for _, size in fitting], inside)
    over = OVER * min(_scaled(over_bytes, scale_bytes, columns), columns - inside)
    if place.extent_bytes > scale_bytes:
        over = over[:-1] + _CUT
    return Bar([(letter, width) for (letter, _), width in zip(fitting, widths, strict=True) if width], over)


def shares(sizes: Sequence[int], columns: int) -> list[int]:
    """Divide columns by size, by largest remainders. What is not 0 gets a column of its own while there are enough."""
    total = sum(sizes)
    if not total:
        return [0] * len(sizes)
    widths = [size * columns // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda at: -(sizes[at] * columns % total))
    for at in by_remainder[: columns - sum(widths)]:
        widths[at] += 1
    for at in sorted((at for at, size in enumerate(sizes) if size and not widths[at]), key=lambda at: -sizes[at]):
        widest = max(range(len(sizes)), key=lambda other: widths[other])
        if widths[widest] > 1:
            widths[widest] -= 1
            widths[at] = 1
    return widths


def _scaled(size: int, scale_bytes: int, columns: int) -> int:
    """The nearest number of columns; at least one where there is anything."""
    return max(1, (2 * size * columns + scale_bytes) // (2 * scale_bytes)) if size else 0


def _parts(place: Place) -> list[tuple[str, int]]:
    """What is spoken for, in the order of the bar: what was there before first, what may stay free last."""
    by_letter = {OTHERS: place.others_bytes, RESERVED: place.reserved_bytes}
    for term, size in place.terms.items():
        letter = letter_of(term)
        by_letter[letter] = by_letter.get(letter, 0) + size
    by_letter[MARGIN] = place.kept_bytes
    return list(by_letter.items())


def _terms(place: Mapping[str, Any]) -> Mapping[str, int]:
    """In the order of the legend, whatever the order of the report."""
    said: Mapping[str, int] = place.get("terms") or {}
    order = [*TERM_LETTERS, *(name for name in said if name not in TERM_LETTERS)]
    return {name: max(0, said.get(name, 0)) for name in order}
