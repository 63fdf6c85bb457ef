"""The choice of a text completion, put together from its pieces."""

from typing import Any

import msgspec

from app.proxy.assembly.events import ABSENT, Choice
from app.proxy.assembly.parts import UnknownPiece, tokens_by


class TextParts:
    """Every token has its event, but for one that ends within a character; an event without text may keep some back."""

    __slots__ = ("_last_timings", "_shown_timings", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._last_timings = self._shown_timings = ABSENT

    @property
    def has_output(self) -> bool:
        """Whether there was any text."""
        return bool(self._text)

    def add(self, choice: Choice, timings: msgspec.Raw) -> None:
        """Take in one piece of text. Raises UnknownPiece."""
        if choice.text is None or choice.delta is not None:
            raise UnknownPiece("no text")
        if choice.finish_reason is not None:
            if choice.text:
                raise UnknownPiece("text in the last event")
            return
        self._last_timings = timings
        if choice.text:
            self._shown_timings = timings
            self._text.append(choice.text)

    def built(self, finish_reason: str) -> dict[str, Any]:
        """`text`, `index`, `logprobs`, `finish_reason`."""
        return {"text": "".join(self._text), "index": 0, "logprobs": None, "finish_reason": finish_reason}

    def may_differ(self, finish_reason: str, generated: int) -> bool:
        """At the limit the last token must have shown its text; else it must have had its event, with text or not."""
        needed = self._shown_timings if finish_reason == "length" else self._last_timings
        return tokens_by(needed) < generated
