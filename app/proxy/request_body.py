"""The body of a request, read as far as somebody asks, and each part of it once. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from app.errors import BodyInvalid

T = TypeVar("T")

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise where bytes are not what they expect."""


class Turn(msgspec.Struct):
    """One message of a chat; its content stays as it is written until somebody reads it."""

    role: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


# Where in its body a client went wrong.
_PLACE = re.compile(r" \(byte \d+\)| in position \d+(-\d+)?")

_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_turns_decoder = msgspec.json.Decoder(list[Turn])


class RequestBody:
    """`data` is all of it, as it came. It may be anything: only who asks for its members demands that it is JSON."""

    __slots__ = ("_members", "_turns", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._members: Mapping[str, msgspec.Raw] | None = None
        self._turns: tuple[Sequence[Turn] | None] | None = None

    @property
    def members(self) -> Mapping[str, msgspec.Raw]:
        """The members of the JSON object by name, each as it is written; of one that comes twice the last.

        Raises BodyInvalid.
        """
        if self._members is None:
            try:
                self._members = _members_decoder.decode(self.data)
            except msgspec.ValidationError as error:
                raise BodyInvalid(f"the body is not what this endpoint takes: {error}") from None
            except UNREADABLE as error:
                raise _no_object(error) from None
        return self._members

    def member(self, name: str, decoder: msgspec.json.Decoder[T | None]) -> T | None:
        """One member as the decoder reads it; None where there is none. Raises BodyInvalid."""
        raw = self.members.get(name)
        if raw is None:
            return None
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise BodyInvalid(f"the body is not what this endpoint takes: {error} - at `$.{name}`") from None
        except UNREADABLE as error:
            raise _no_object(error, f" - at `$.{name}`") from None

    @property
    def turns(self) -> Sequence[Turn] | None:
        """The messages of a chat, or of an `input` that is one; None where there is no list. Raises BodyInvalid."""
        if self._turns is None:
            raw = self.members.get("messages") or self.members.get("input")
            self._turns = (None if raw is None else _turns(raw),)
        return self._turns[0]


def _no_object(error: Exception, where: str = "") -> BodyInvalid:
    message = f"the body is not a JSON object: {error}{where}"
    return BodyInvalid(message, recorded=_PLACE.sub("", message))


def _turns(raw: msgspec.Raw) -> Sequence[Turn] | None:
    try:
        return _turns_decoder.decode(raw)
    except UNREADABLE:
        return None
