"""The turns of the user in a request body, for the classifier alone: they are looked at and forgotten. Pure."""

from collections.abc import Sequence

import msgspec

# Beyond so many bytes of one turn nothing is decoded: what lies there is material, or a picture.
_MOST_TURN_BYTES = 64 * 1024
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Turn(msgspec.Struct):
    role: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    messages: list[_Turn] | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None


_body_decoder = msgspec.json.Decoder(_Body)
_turns_decoder = msgspec.json.Decoder(list[_Turn])
_content_decoder = msgspec.json.Decoder(str | list[_Part] | None)


def user_turns(body: bytes) -> Sequence[str]:
    """What the user said, the last turn last; of the earlier ones only that there were any. Empty where none is told.

    Chats of OpenAI's and Anthropic's form, `prompt` of completions, `input` of responses.
    """
    try:
        asked = _body_decoder.decode(body)
        turns = asked.messages
        if turns is None and bytes(memoryview(asked.input)[:1]) == b"[":
            turns = _turns_decoder.decode(asked.input)
        if turns is None:
            text = _text(asked.prompt) or _text(asked.input)
            return [text] if text else []
        own = [turn for turn in turns if turn.role == "user"]
        return [*("" for _ in own[:-1]), *(_text(turn.content) for turn in own[-1:])]
    except _UNREADABLE:
        return []


def _text(content: msgspec.Raw) -> str:
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
