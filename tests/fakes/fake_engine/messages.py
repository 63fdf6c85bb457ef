"""An answer as the engine gives it to Anthropic's clients, as recorded; nothing here waits or writes."""

from collections.abc import Iterator
from typing import Any

from .bodies import Answer, dumps, word


def whole(answer: Answer) -> dict[str, Any]:
    """The answer in one piece."""
    content = [{"type": "text", "text": answer.text}]
    return _message(answer, content, _stop_reason(answer), answer.tokens)


def events(answer: Answer) -> Iterator[str]:
    """The events of the stream, each with its name."""
    for event in _events(answer):
        yield f"event: {event['type']}\ndata: {dumps(event)}\n\n"


def _events(answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(answer, [], None, 0)}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for index in range(answer.tokens):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word(index)}}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": answer.tokens}}
    yield {"type": "message_stop"}


def _message(answer: Answer, content: list[Any], stop_reason: str | None, tokens: int) -> dict[str, Any]:
    new = answer.prompt_tokens - answer.cached_tokens
    usage = {"cache_read_input_tokens": answer.cached_tokens, "input_tokens": new, "output_tokens": tokens}
    return {
        "id": answer.id(), "type": "message", "role": "assistant", "content": content, "model": answer.model,
        "stop_reason": stop_reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def _stop_reason(answer: Answer) -> str:
    return "max_tokens" if answer.finish == "length" else "end_turn"
