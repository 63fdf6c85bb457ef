"""The engine's command line, read from the recorded `--help` text.

The recorded text is the only list of flags, so the fake cannot know a flag that the engine lacks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

REMOVED = "the argument has been removed"
_DESCRIPTION_COLUMN = 40


class BadArgument(Exception):
    """The text that the engine prints to stderr before it exits with 1."""


@dataclass(frozen=True)
class Flag:
    """One entry of the help text; `hint` is empty for a flag without a value."""

    names: tuple[str, ...]
    hint: str
    entry: str

    @property
    def arity(self) -> int:
        if not self.hint:
            return 0
        return 2 if self.hint == "START END" else 1

    @property
    def description(self) -> str:
        rows = (row[_DESCRIPTION_COLUMN:] for row in self.entry.splitlines()[1:])
        return " ".join([self.entry.splitlines()[0][_DESCRIPTION_COLUMN:], *rows]).strip()


@dataclass
class Options:
    """What the command line said; the last of repeated flags wins, as in the engine."""

    flags: dict[str, Flag]
    given: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict)

    def value(self, name: str, default: str = "") -> str:
        return self.given.get(self.flags[name].names, ("", default))[1]

    def number(self, name: str, default: int) -> int:
        return int(self.value(name) or default)

    def used(self, name: str) -> str | None:
        """The spelling under which the flag was given (`--no-slots`), or None."""
        spelled = self.given.get(self.flags[name].names)
        return spelled[0] if spelled else None


def read_flags(help_text: str) -> dict[str, Flag]:
    """Every name in the help text, mapped to its flag."""
    entries: list[list[str]] = []
    for line in help_text.splitlines():
        if re.match(r"--?[A-Za-z]", line):
            entries.append([line])
        elif entries and line.startswith(" " * _DESCRIPTION_COLUMN):
            entries[-1].append(line)
    flags = [_read_entry(rows) for rows in entries]
    return {name: flag for flag in flags for name in flag.names}


def _read_entry(rows: list[str]) -> Flag:
    head = rows[0]
    names, position = [], 0
    while match := re.compile(r"(--?[\w.-]+)(,?) *").match(head, position):
        names.append(match[1])
        position = match.end()
        if not match[2]:
            break
    # The description starts at a fixed column; names and a hint that reach past it have the line
    # to themselves.
    shared = head[_DESCRIPTION_COLUMN - 1 : _DESCRIPTION_COLUMN] == " "
    if shared and position <= _DESCRIPTION_COLUMN:
        head = head[:_DESCRIPTION_COLUMN]
    return Flag(tuple(names), head[position:].strip(), "\n".join(rows))


def parse(arguments: Sequence[str], flags: dict[str, Flag]) -> Options:
    """Raises BadArgument as the engine does: unknown flag, missing value, wrong value."""
    options = Options(flags)
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        spelled = name.replace("_", "-") if name.startswith("--") else name
        flag = flags.get(spelled)
        if flag is None:
            raise BadArgument(f"error: invalid argument: {name}")
        if len(rest) < flag.arity:
            raise _misused(flag, name, "expected value for argument")
        taken = [rest.pop(0) for _ in range(flag.arity)]
        if reason := _objection(flag, taken):
            raise _misused(flag, name, reason)
        options.given[flag.names] = (spelled, " ".join(taken))
    return options


def _misused(flag: Flag, name: str, reason: str) -> BadArgument:
    return BadArgument(
        f'error while handling argument "{name}": {reason}\n\nusage:\n{flag.entry}\n\n\n'
        "to show complete usage, run with -h"
    )


def _objection(flag: Flag, taken: list[str]) -> str:
    if flag.description.startswith(REMOVED):
        return flag.description.split("(env:")[0].strip()
    if not taken:
        return ""
    value = taken[0]
    if flag.hint in ("N", "INDEX", "PORT", "SECONDS"):
        words = ("auto", "all") if "'auto', or 'all'" in flag.description else ()
        if value not in words and not re.match(r"\s*[+-]?\d", value):
            return "stoi"
        return "error: invalid value for n_parallel\n" if "-np" in flag.names and value == "0" else ""
    return _not_allowed(flag, value)


def _not_allowed(flag: Flag, value: str) -> str:
    """The objection to a value outside the set that the help text names."""
    if flag.hint.startswith("[on|") and value not in flag.hint.strip("[]").split("|"):
        return f"error: unknown value for {flag.names[-1]}: '{value}'\n"
    modes = flag.hint.strip("{}").split(",") if flag.hint.startswith("{") else []
    if flag.hint == "MODE":
        modes = re.findall(r"- ([\w+]+):", flag.description)
    if modes and value not in modes:
        return "invalid value"
    if "--spec-type" in flag.names:
        unknown = [kind for kind in value.split(",") if kind not in flag.hint.split(",")]
        return f"unknown speculative type: {unknown[0]}" if unknown else ""
    allowed = re.search(r"allowed values: ([\w, ]+)", flag.description)
    if allowed and value not in re.split(r",\s*", allowed[1].strip()):
        return f"Unsupported cache type: {value}"
    return ""
