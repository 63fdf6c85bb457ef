"""A Dockerfile, read: instructions by stage. Enough of the syntax for ours; what it does not know it refuses."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_KNOWN = frozenset("ARG LABEL RUN COPY ENV USER WORKDIR EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split())


@dataclass(frozen=True)
class Instruction:
    word: str
    text: str


@dataclass(frozen=True)
class Stage:
    name: str
    parent: str
    instructions: tuple[Instruction, ...]

    def last(self, word: str) -> Instruction | None:
        return next((each for each in reversed(self.instructions) if each.word == word), None)


@dataclass(frozen=True)
class Dockerfile:
    arguments: Mapping[str, str]
    stages: tuple[Stage, ...]

    def line(self, name: str) -> Sequence[Stage]:
        """The stage of that name and those that it stands on, the first one first."""
        own = next(stage for stage in self.stages if stage.name == name)
        known = {stage.name for stage in self.stages}
        return [*(self.line(own.parent) if own.parent in known else ()), own]

    def last(self, name: str, word: str) -> Instruction | None:
        """What counts in an image of that stage."""
        return next((found for stage in reversed(self.line(name)) if (found := stage.last(word))), None)


def read_dockerfile(path: Path = ROOT / "Dockerfile") -> Dockerfile:
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in _instructions(path.read_text(encoding="utf-8")):
        if instruction.word == "ARG" and not stages:
            name, _, value = instruction.text.partition("=")
            arguments[name] = value
        elif instruction.word == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", instruction.text)
            assert match is not None, instruction
            stages.append((match[2], match[1], []))
        else:
            assert instruction.word in _KNOWN, instruction
            stages[-1][2].append(instruction)
    return Dockerfile(arguments, tuple(Stage(name, parent, tuple(own)) for name, parent, own in stages))


def environment_of(text: str, before: Mapping[str, str]) -> dict[str, str]:
    """What an ENV adds, its values filled in from what was there."""
    pairs = (word.partition("=") for word in shlex.split(text))
    return {name: re.sub(r"\$\{(\w+)\}", lambda found: before[found[1]], value) for name, _, value in pairs}


def _instructions(text: str) -> Iterator[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    # A comment within a continued line goes with it; ours have none there.
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield Instruction(word, re.sub(r"\s{2,}", " ", rest))
