"""The words of a raw command line -> variables, program, flags with their values. Pure; says nothing of meaning."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import join

from app.inventory.engine import EngineFlag
from app.llama_server.command_tables import KNOWN, OPTIONAL_VALUE, SECRET, SWITCHES, TWO_VALUES
from app.llama_server.extra_args import spelled

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"(?:llama-server[\w.-]*|server)(?:\.exe)?")
_PROMPTS = frozenset({"$", "%", "#", "env", "exec"})
_NUMBER = re.compile(r"-\d|-\.\d")
_HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the flags. `wrapper` are the words that start the program, such as `nohup`."""

    variables: tuple[tuple[str, str], ...]
    wrapper: tuple[str, ...]
    program: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """One flag as it was written, or a word that stands where a flag should (`is_stray`).

    `name` is how the engine spells it. `values` has what followed. `as_written` says what is wrong with the spelling.
    """

    name: str
    values: tuple[str, ...] = ()
    written: str = ""
    as_written: str = ""
    is_stray: bool = False

    @property
    def value(self) -> str | None:
        """The first value."""
        return self.values[0] if self.values else None


def split_head(words: Sequence[str]) -> Head:
    """Find the program. Without one the words are flags alone, or nothing that is known."""
    start = next((index for index, word in enumerate(words) if not _is_before(word)), len(words))
    program = None if words[start : start + 1] and words[start].startswith("-") else _program(words, start)
    if program is None:
        return Head(_variables(words[:start]), (), None, tuple(words[start:]))
    before = words[:program]
    wrapper = tuple(word for word in before if not _is_before(word))
    # `llama serve` is two words.
    flags_from = program + (2 if words[program].endswith("llama") else 1)
    return Head(_variables(before), wrapper, words[program], tuple(words[flags_from:]))


def _is_before(word: str) -> bool:
    return word in _PROMPTS or _ASSIGNMENT.fullmatch(word) is not None


def _program(words: Sequence[str], start: int) -> int | None:
    """Where the program stands: also behind a wrapper and its flags, as in `numactl --interleave=all llama-server`."""
    first_flag = next((i for i, word in enumerate(words) if i >= start and word.startswith("-")), len(words))
    return next(
        (
            index
            for index in range(start, len(words))
            if _is_server(words, index) and (index < first_flag or "llama-server" in words[index])
        ),
        None,
    )


def _is_server(words: Sequence[str], index: int) -> bool:
    name = re.split(r"[/\\]", words[index])[-1]
    if name == "llama":
        return list(words[index + 1 : index + 2]) in (["serve"], ["server"])
    return _SERVER.fullmatch(name) is not None


def _variables(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = (_ASSIGNMENT.fullmatch(word) for word in words)
    return tuple((match[1], match[2]) for match in found if match)


def read_flags_said(words: Sequence[str], flags: Mapping[str, EngineFlag]) -> list[Said]:
    """Split arguments into flags and values. `flags` are those of the engine at hand, for names not known here."""
    found = []
    position = 0
    while position < len(words):
        said, taken = _read(words, position, flags)
        found.append(said)
        position += taken
    return found


def _read(words: Sequence[str], position: int, flags: Mapping[str, EngineFlag]) -> tuple[Said, int]:
    word = words[position]
    if not word.startswith("-") or word in ("-", "--") or _NUMBER.match(word):
        return Said(word, written=join([word]), is_stray=True), 1
    name, fused, as_written = _name_of(word, flags)
    values = [fused] if fused is not None else []
    if fused is None:
        values = _values(name, words[position + 1 :], flags)
    shown = [_HIDDEN] * len(values) if name in SECRET else values
    if fused is not None:
        written = join([f"{word.partition('=')[0]}={shown[0]}"]) if name not in SECRET else f"{name}={_HIDDEN}"
    else:
        written = f"{join([word])} {_HIDDEN}" if values and name in SECRET else join([word, *shown])
    return Said(name, tuple(values), written, as_written), 1 + (0 if fused is not None else len(values))


def _name_of(word: str, flags: Mapping[str, EngineFlag]) -> tuple[str, str | None, str]:
    """Name, a value joined to it by `=`, and what is wrong with writing it so."""
    before, equals, value = word.partition("=")
    for name, fused in ((word, None), (before, value if equals else None)):
        for candidate, wrong in ((spelled(name), ""), *_other_dashes(name)):
            if _is_known(candidate, flags):
                wrongs = [wrong] if wrong else []
                if fused is not None:
                    wrongs.append("llama-server takes the value as a word of its own, not after `=`")
                return candidate, fused, "; ".join(wrongs)
    return spelled(word), None, ""


def _other_dashes(name: str) -> list[tuple[str, str]]:
    bare = name.lstrip("-")
    other = f"-{bare}" if name.startswith("--") else f"--{bare}".replace("_", "-")
    return [(other, f"llama-server knows {other}, not {name}")]


def _is_known(name: str, flags: Mapping[str, EngineFlag]) -> bool:
    return name in KNOWN or name in flags


def _values(name: str, rest: Sequence[str], flags: Mapping[str, EngineFlag]) -> list[str]:
    if name in SWITCHES or not rest:
        return []
    if name in TWO_VALUES:
        return list(rest[:2])
    following = rest[0]
    looks_like_flag = following.startswith("-") and not _NUMBER.match(following)
    if name in OPTIONAL_VALUE:
        return [] if looks_like_flag else [following]
    if not _is_known(name, flags):
        return [] if looks_like_flag else [following]
    if name not in KNOWN and not flags[name].takes_value:
        return []
    # The engine takes any word; one that is a flag itself was surely not meant.
    return [] if looks_like_flag and _is_known(spelled(following), flags) else [following]
