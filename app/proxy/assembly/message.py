"""The choice of a chat completion, put together from its pieces."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.proxy.assembly.events import ABSENT, Choice, Delta, ToolCallDelta
from app.proxy.assembly.parts import UnknownPiece, tokens_by

# The engine's stand-in for bytes that are no character.
_NO_CHARACTER = "\ufffd"


@dataclass(slots=True)
class _ToolCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, piece: ToolCallDelta) -> None:
        # Ids and names come whole each time they change; only the arguments come in parts.
        self.id = piece.id or self.id
        if piece.function is not None:
            self.name = piece.function.name or self.name
            if piece.function.arguments:
                self.arguments.append(piece.function.arguments)

    def built(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        call: dict[str, Any] = {"type": "function", "function": function}
        return {**call, "id": self.id} if self.id else call


class MessageParts:
    """A token has an event only where it changes the message; the marks of the model's format do not."""

    __slots__ = ("_calls", "_content", "_reasoning", "_shown_timings")

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_ToolCall] = []
        self._shown_timings = ABSENT

    @property
    def has_output(self) -> bool:
        """Whether there was any content, reasoning or call."""
        return bool(self._content or self._reasoning or self._calls)

    def add(self, choice: Choice, timings: msgspec.Raw) -> None:
        """Take in one delta. Raises UnknownPiece."""
        delta = choice.delta
        if delta is None or choice.text is not None:
            raise UnknownPiece("no delta")
        if delta.role is not None and delta.role != "assistant":
            raise UnknownPiece("another role")
        if self._adds(delta) and timings:
            self._shown_timings = timings

    def _adds(self, delta: Delta) -> bool:
        if delta.content:
            self._content.append(delta.content)
        if delta.reasoning_content:
            self._reasoning.append(delta.reasoning_content)
        for piece in delta.tool_calls or ():
            self._call(piece).add(piece)
        return bool(delta.content or delta.reasoning_content or delta.tool_calls)

    def _call(self, piece: ToolCallDelta) -> _ToolCall:
        if piece.type is not None and piece.type != "function":
            raise UnknownPiece("a tool that is no function")
        if piece.index == len(self._calls):
            self._calls.append(_ToolCall())
        if not 0 <= piece.index < len(self._calls):
            raise UnknownPiece("a tool call out of turn")
        return self._calls[piece.index]

    def built(self, finish_reason: str) -> dict[str, Any]:
        """`finish_reason`, `index`, `message` of role, content and, where there are any, reasoning and tool calls."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [call.built() for call in self._calls]
        return {"finish_reason": finish_reason, "index": 0, "message": message}

    def may_differ(self, finish_reason: str, generated: int) -> bool:
        """At the limit the last token must have shown its text; elsewhere it is an end mark, or part of a stop string.

        One token and no output is the end mark alone.
        """
        if finish_reason == "length" and tokens_by(self._shown_timings) < generated:
            return True
        if not self.has_output:
            return generated > 1
        return bool(self._reasoning or self._calls) and any(_NO_CHARACTER in text for text in self._texts())

    def _texts(self) -> Iterator[str]:
        yield from self._content
        yield from self._reasoning
        for call in self._calls:
            yield from call.arguments
