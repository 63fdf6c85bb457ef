"""The turns of the user in a request body, for the classifier alone: they are looked at and forgotten. Pure."""

from collections.abc import Sequence

import msgspec

from app.errors import BodyInvalid
from app.proxy.request_body import UNREADABLE, RequestBody

# Beyond so many bytes of one turn nothing is decoded: what lies there is material, or a picture.
_MOST_TURN_BYTES = 64 * 1024


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None


_content_decoder = msgspec.json.Decoder(str | list[_Part] | None)


def user_turns(body: RequestBody) -> Sequence[str]:
    """What the user said, the last turn last; of the earlier ones only that there were any. Empty where none is told.

    Chats of OpenAI's and Anthropic's form, `prompt` of completions, `input` of responses.
    """
    try:
        turns, members = body.turns, body.members
        if turns is None:
            text = _text(members.get("prompt")) or _text(members.get("input"))
            return [text] if text else []
        own = [turn for turn in turns if turn.role == "user"]
        return [*("" for _ in own[:-1]), *(_text(turn.content) for turn in own[-1:])]
    except (BodyInvalid, *UNREADABLE):
        return []


def _text(content: msgspec.Raw | None) -> str:
    if content is None:
        return ""
    view = memoryview(content)
    if len(view) > _MOST_TURN_BYTES:
        return _beginning(bytes(view[:_MOST_TURN_BYTES]))
    decoded = _content_decoder.decode(content)
    if isinstance(decoded, str):
        return decoded
    return "\n".join(part.text for part in decoded or () if part.text)


def _beginning(raw: bytes) -> str:
    """The first bytes of a long string as text, escapes as they stand: the task may be there."""
    return raw[1:].decode("utf-8", "ignore") if raw[:1] == b'"' else ""
