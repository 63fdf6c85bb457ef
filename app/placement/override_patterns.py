"""Patterns of tensor overrides: read as the engine reads them, and looked for within a bound.

The engine's are ECMAScript patterns of `std::regex`, searched for anywhere in a tensor's name. What is accepted here is
what both that and `regex` read, and read alike; it is then written anew so that all names are searched in one call.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import regex


class Refusal(Enum):
    """Why a pattern is not looked for; the value says it of the pattern."""

    UNREADABLE = "is not a regular expression that the engine reads"
    RUNS_AWAY = "repeats more than names need: the engine would search for it without end"
    TOO_SLOW = "takes too long to search for: the engine would hang on it as well"


@dataclass(frozen=True, slots=True)
class Matches:
    """By name the position of the first pattern found in it, and by pattern why it was not looked for."""

    first: Mapping[str, int]
    refused: Mapping[str, Refusal]


# All names of a model take a common pattern a millisecond. Short looks keep the interpreter, because giving it up for
# each name found would wait for other threads each time; longer ones let them run. The seconds are of processor time.
_SHORT_LOOK_SECONDS = 0.01
_LONG_LOOK_SECONDS = 0.05
_LONG_LOOKS_MOST = 4
_LAST_LOOK_SECONDS = 0.003
_CHARACTERS_MOST = 256
# Each of them may multiply the ways to fail; `regex` remembers where it failed, but the engine tries them all.
_REPEATS_MOST, _REPEATS_IN_A_ROW_MOST, _CHOICES_MOST = 8, 4, 12

_ESCAPED = r"\\[!-/:-@\[-`{-~]"
_IN_SET = rf"(?:[^\x00-\x1f\x7f-\U0010ffff\\\[\]\-]|\[(?![.=:])|{_ESCAPED})"
_NAMED = r"\[:(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit):\]"
_TOKEN = re.compile(
    rf"""
    (?P<repeat>(?:[*+?]|\{{[0-9]{{1,3}}\}})\??)
    |(?P<assertion>[\^$]|\\[bB])
    |(?P<ahead>\(\?[=!])
    |(?P<group>\((?:\?:|(?![?*])))
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<set>\[\^?(?!\]|--\])-?(?:{_NAMED}|\\[dDwWsS](?!-[^\]])|{_IN_SET}-{_IN_SET}|{_IN_SET})*-?\])
    |(?P<atom>\.|\\[dDwWsS]|{_ESCAPED}|[^\x00-\x1f\x7f-\U0010ffff\\\[\](){{}}*+?|^$.])
    """,
    re.VERBOSE,
)
_BRACKET = re.compile(rf"{_NAMED}|\\.|\[")
_MAY_BE_LINE_END = re.compile(r"\\[DWs]|\[:(?:space|cntrl):")


def look_for(patterns: Sequence[str], names: Iterable[str]) -> Matches:
    """Search every name for the patterns, the first one found deciding, as the engine does.

    A pattern that is refused is passed over. Patterns that take long take a quarter of a second of processor time
    together; each after them is given 3 ms.
    """
    first: dict[str, int] = {}
    refused: dict[str, Refusal] = {}
    left, long_looks = [name for name in names if "\n" not in name], _LONG_LOOKS_MOST
    for position, pattern in enumerate(patterns):
        if pattern in refused:
            continue
        whole = _whole(pattern)
        if isinstance(whole, Refusal):
            refused[pattern] = whole
        elif left:
            seconds = _SHORT_LOOK_SECONDS if long_looks else _LAST_LOOK_SECONDS
            found = _found(whole, left, seconds, lets_others_run=False)
            if found is None and long_looks:
                long_looks -= 1
                found = _found(whole, left, _LONG_LOOK_SECONDS, lets_others_run=True)
            if found is None:
                refused[pattern] = Refusal.TOO_SLOW
            elif found:
                first |= dict.fromkeys(found, position)
                left = [name for name in left if name not in first]
    return Matches(first, refused)


def _found(
    whole: regex.Pattern[str], names: Sequence[str], seconds: float, *, lets_others_run: bool
) -> list[str] | None:
    """The names that a pattern is found in; None where that is not known in time."""
    text = "\n".join(names)
    found, lines = whole.finditer(text, timeout=seconds, concurrent=lets_others_run), f"{text}\n"
    try:
        return [lines[each.start() : lines.index("\n", each.start())] for each in found]
    except TimeoutError:
        return None


def _whole(pattern: str) -> regex.Pattern[str] | Refusal:
    """What matches every line from its start to where the pattern is first found in it."""
    written = _written_anew(pattern)
    if isinstance(written, Refusal):
        return written
    try:
        return regex.compile(f"^.*?(?:{written})", regex.VERSION0 | regex.ASCII | regex.MULTILINE)
    except regex.error:
        return Refusal.UNREADABLE


def _written_anew(pattern: str) -> str | Refusal:
    """The pattern for a text of one name a line: no part of it matches the end of a line, no group is remembered."""
    if len(pattern) > _CHARACTERS_MOST:
        return Refusal.UNREADABLE
    reading, end = _Reading(), 0
    while end < len(pattern):
        token = _TOKEN.match(pattern, end)
        if token is None or not reading.take(str(token.lastgroup), token.group()):
            return Refusal.UNREADABLE
        end = token.end()
    if not reading.written or len(reading.open) > 1:
        return Refusal.UNREADABLE
    return Refusal.RUNS_AWAY if reading.runs_away else "".join(reading.written)


@dataclass(slots=True)
class _Group:
    """A group that is read: what is in it, and what it is once closed."""

    kind: str
    has_choices: bool = False
    has_alternatives: bool = False


@dataclass(slots=True)
class _Reading:
    """A pattern as far as it is read. `repeatable` is what a repeat would repeat, None where it may not stand."""

    written: list[str] = field(default_factory=list)
    open: list[_Group] = field(default_factory=lambda: [_Group("group")])
    repeatable: _Group | None = None
    repeats: int = 0
    repeats_in_a_row: int = 0
    choices: int = 0
    runs_away: bool = False

    def take(self, kind: str, text: str) -> bool:
        """Read one token; False where it may not stand here."""
        repeatable, self.repeatable = self.repeatable, None
        if kind == "repeat":
            return self._repeat(repeatable, text)
        if kind == "either" or (repeatable is not None and repeatable.kind in {"set", "atom"}):
            self.repeats_in_a_row = 0
        if kind in {"group", "ahead"}:
            self.open.append(_Group(kind))
            text = text if kind == "ahead" else "(?:"
        elif kind == "close":
            if len(self.open) == 1:
                return False
            closed = self.open.pop()
            self.open[-1].has_choices |= closed.has_choices
            # The engine takes no repeat of what only looks ahead.
            self.repeatable = closed if closed.kind == "group" else None
        elif kind == "either":
            self.choices += not self.open[-1].has_alternatives
            self.open[-1].has_choices = self.open[-1].has_alternatives = True
            self.runs_away |= self.choices > _CHOICES_MOST
        elif kind in {"set", "atom"}:
            self.repeatable = _Group(kind)
            text = _within_line(text)
        self.written.append(text)
        return True

    def _repeat(self, repeated: _Group | None, text: str) -> bool:
        if repeated is None:
            return False
        # A repetition of what has several ways to match can take for ever where the rest does not match.
        self.runs_away |= repeated.has_choices and text[0] != "?"
        self.open[-1].has_choices = True
        self.repeats += text[0] != "{"
        self.repeats_in_a_row += text[0] != "{"
        self.runs_away |= max(self.repeats - _REPEATS_MOST, self.repeats_in_a_row - _REPEATS_IN_A_ROW_MOST) > 0
        self.written.append(text)
        return True


def _within_line(atom: str) -> str:
    """A class or a single character, without the end of a line. `regex` wants a bare bracket in a class escaped."""
    if not atom.startswith("["):
        return rf"(?:(?!\n){atom})" if _MAY_BE_LINE_END.search(atom) else atom
    inner = _BRACKET.sub(lambda found: r"\[" if found.group() == "[" else found.group(), atom[1:])
    if atom.startswith("[^"):
        return rf"[{inner[:-1]}\n]" if not inner.endswith("-]") else rf"[{inner[:-2]}\-\n]"
    return rf"(?:(?!\n)[{inner})" if _MAY_BE_LINE_END.search(atom) else f"[{inner}"
