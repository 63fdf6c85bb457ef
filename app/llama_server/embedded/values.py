"""How the values of flags are read from text, and how they are put into the parameters.

Readers raise ValueError, or ValueRejected where they have more to say than "invalid value". They do not import the
package: a member of one of its enumerations is carried by name until it is put.
"""

import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from app.llama_server.embedded.flag import Params, Put, ValueRejected

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A member of one of the package's enumerations, by name."""

    enumeration: str
    name: str

    def resolve(self) -> Any:
        """The member itself; loads the package."""
        package = importlib.import_module("xllamacpp")
        return getattr(getattr(package, self.enumeration), self.name)


def member(enumeration: str, prefix: str, words: Mapping[str, str]) -> Callable[[str], Member]:
    """A reader of one of `words`, whose values are member names without their prefix."""

    def read(text: str) -> Member:
        if text not in words:
            raise ValueRejected(f"unknown value '{text}', use one of {', '.join(words)}")
        return Member(enumeration, prefix + words[text])

    return read


def integer(least: int = -(2**31), most: int = 2**31 - 1) -> Callable[[str], int]:
    """A reader of a whole number in a closed range."""

    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueRejected(f"invalid value {number}, use {least} to {most}")
        return number

    return read


def number(least: float = float("-inf"), most: float = float("inf")) -> Callable[[str], float]:
    """A reader of a number in a closed range."""

    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise ValueRejected(f"invalid value {value}, use {least} to {most}")
        return value

    return read


def word(*words: str) -> Callable[[str], str]:
    """A reader that takes one of the words as it is."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueRejected(f"unknown value '{text}', use one of {', '.join(words)}")
        return text

    return read


def switch(text: str) -> bool:
    """`on` or `off`, and the other spellings that llama-server takes."""
    if text in ("on", "enabled", "true", "1"):
        return True
    if text in ("off", "disabled", "false", "0"):
        return False
    raise ValueRejected(f"unknown value '{text}', use on or off")


def layers(text: str) -> int:
    """A number of layers; `auto` is -1 and `all` is -2."""
    return {"auto": -1, "all": -2}.get(text) or int(text)


def threads(text: str) -> int:
    """A number of threads; zero and below mean all processors."""
    count = int(text)
    return count if count > 0 else os.cpu_count() or 1


def listed(text: str) -> list[str]:
    """The parts between commas; empty ones do not count."""
    return [part for part in text.split(",") if part]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas or slashes."""
    return [float(part) for part in text.replace("/", ",").split(",")]


def file_text(text: str) -> str:
    """The content of the named file."""
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueRejected(f"failed to read file '{text}': {error}") from error


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueRejected(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueRejected("not a JSON object")
    return value


def owner(params: Params, path: str) -> tuple[Any, str]:
    """The object that holds the last name of a dotted path, and that name."""
    *outer, last = path.split(".")
    return reduce(getattr, outer, params), last


def at(path: str, *, scale: int = 1, negated: bool = False) -> Put:
    """Puts a value at a dotted path of the parameters, scaled or negated on the way."""

    def put(params: Params, value: Any) -> None:
        holder, name = owner(params, path)
        if isinstance(value, Member):
            value = value.resolve()
        elif negated:
            value = not value
        elif scale != 1:
            value = value * scale
        setattr(holder, name, value)

    return put


def always(path: str, value: Any) -> Put:
    """Puts the same value whenever its flag is named."""
    return lambda params, _: at(path)(params, value)


def added(path: str) -> Put:
    """Adds a list of values to the list at a path: flags that may be given again and add up."""

    def put(params: Params, values: list[Any]) -> None:
        holder, name = owner(params, path)
        setattr(holder, name, [*getattr(holder, name), *values])

    return put


def together(*puts: Put) -> Put:
    """One flag that sets more than one parameter."""

    def put(params: Params, value: Any) -> None:
        for each in puts:
            each(params, value)

    return put
