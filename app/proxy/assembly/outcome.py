"""What came of a stream that was to become one answer."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Assembled:
    """The answer, a JSON object as the engine gives it without a stream; its status is 200.

    `may_differ` says that the engine's own answer may show more, and that its stream does not tell: at the token limit
    it keeps back the beginning of a stop string, or of a character; a message in which it finds nothing is shown as it
    was, with the marks of its format; and reasoning that is not UTF-8 it may take for content in the end. What is not
    told at all: a chat whose model ends within a character lacks the U+FFFD that the engine puts there.
    """

    body: bytes
    may_differ: bool


@dataclass(frozen=True, slots=True)
class EngineRefused:
    """The engine ended the stream with an error: the status and the body that it gives without a stream.

    But for one case: of output that it cannot write as JSON it says 400 in an answer and 500 in a stream.
    """

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class CutShort:
    """The stream ended before the event that completes the answer; there is no answer to give."""

    had_output: bool


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """An event is not what this engine's streams consist of, so the answer would not be the engine's own."""

    reason: str


Outcome: TypeAlias = Assembled | EngineRefused | CutShort | NotUnderstood
