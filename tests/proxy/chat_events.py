"""The events of a chat, as the engine streams them where it is asked for all that an answer needs."""

import json

from proxy.scripted_engine import DONE_EVENT

BASE = {
    "created": 1,
    "id": "chatcmpl-1",
    "model": "small",
    "system_fingerprint": "b1",
    "object": "chat.completion.chunk",
}
TIMINGS = {
    "cache_n": 0, "prompt_n": 3, "prompt_ms": 1.5, "prompt_per_token_ms": 0.5, "prompt_per_second": 2000.0,
    "predicted_n": 2, "predicted_ms": 20.25, "predicted_per_token_ms": 10.1, "predicted_per_second": 98.0,
}  # fmt: skip
USAGE = {"completion_tokens": 2, "prompt_tokens": 3, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}


def piece(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    """An event with a piece of the message; its characters are not escaped."""
    choices = [{"finish_reason": finish, "index": 0, "delta": delta}]
    return b"data: " + json.dumps({"choices": choices, **BASE, **more}, ensure_ascii=False).encode() + b"\n\n"


PIECES = [
    piece({"role": "assistant", "content": None}),
    piece({"content": "Hel"}, timings=TIMINGS),
    piece({"content": "lo"}, timings=TIMINGS),
    piece({}, "stop", timings=TIMINGS),
    b"data: " + json.dumps({"choices": [], **BASE, "usage": USAGE, "timings": TIMINGS}).encode() + b"\n\n",
    DONE_EVENT,
]
