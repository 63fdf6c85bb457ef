"""What a row of the flag table is, and where its effect can be read back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.errors import EngineError

Params = Any
"""`xllamacpp.CommonParams`; the package has no type stubs."""

Put = Callable[[Params, Any], None]
"""Writes one read value into the parameters."""


class CommandLineRejected(EngineError):
    """The embedded engine was given an argument that it does not take."""

    code = "embedded-command-line-rejected"


class ValueRejected(ValueError):
    """A flag's value cannot be read; the parser adds the flag's name."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Read back from `generation_settings` of a completion; `path` is dotted."""

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Props:
    """Read back from `GET /props`; `path` is dotted."""

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Models:
    """Read back from the first entry of `GET /v1/models`; `path` is dotted."""

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Slots:
    """Read back from the first entry of `GET /slots`; `path` is dotted."""

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Log:
    """Read back from the log at `-lv 5`: `pattern` matches, and without the flag it does not."""

    pattern: str


@dataclass(frozen=True, slots=True)
class NoLog:
    """Read back from the log at `-lv 5`: `pattern` is absent, and without the flag it is there."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Read back by behaviour; `name` is the check in the test."""

    name: str


@dataclass(frozen=True, slots=True)
class OnlyParams:
    """No server that runs here shows it; `reason` says why. Read back from the parameters."""

    reason: str


Seen = Generation | Props | Models | Slots | Log | NoLog | Effect | OnlyParams


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its names, how its value is read and set, its help, and the proof that it acts.

    `value` is the placeholder in the help; empty means that the flag takes no value and then
    `put` receives True, or False by one of the names in `off`. `example` is an argument list with
    a value other than the default; `{target}`, `{draft}`, `{folder}` and the like are filled in
    by the test. `launch` names the group of flags that one server can carry together.
    """

    names: tuple[str, ...]
    meaning: str
    put: Put
    example: tuple[str, ...]
    seen: Seen
    value: str = ""
    read: Callable[[str], Any] = str
    off: tuple[str, ...] = ()
    launch: str = "plain"

    @property
    def takes_value(self) -> bool:
        """Whether the next argument is its value."""
        return bool(self.value)


@dataclass(frozen=True, slots=True)
class Refused:
    """Flags of llama-server that cannot be honoured here, and why."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag as it was given on a command line."""

    flag: Flag
    name: str
    value: Any = field(default=True)
