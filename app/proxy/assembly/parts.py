"""What the choice of an answer is put together from, whatever its kind."""

from typing import Any, Protocol

import msgspec

from app.proxy.assembly.events import Choice, Timings

_timings_decoder = msgspec.json.Decoder(Timings)


class UnknownPiece(Exception):
    """A piece that does not belong to such an answer."""


class Parts(Protocol):
    """Collects the pieces of one choice."""

    @property
    def has_output(self) -> bool:
        """Whether there was any text or call."""

    def add(self, choice: Choice, timings: msgspec.Raw) -> None:
        """Take in the choice of one event, and the timings that stand beside it. Raises UnknownPiece."""

    def built(self, finish_reason: str) -> dict[str, Any]:
        """The choice as the engine has it in an answer, members in its order."""

    def may_differ(self, finish_reason: str, generated: int) -> bool:
        """Whether the engine's own answer of `generated` tokens may be another; `Assembled` says when."""


def tokens_by(timings: msgspec.Raw) -> int:
    """How many tokens there were by the event with these timings; 0 where it had none."""
    return _timings_decoder.decode(timings).predicted_n if timings else 0
