"""How many tokens a request gets, and what is counted as its prompt."""

import json
from dataclasses import dataclass
from typing import Any

from .bodies import Answer, dumps
from .scenario import Scenario

_TOKENS_WITHOUT_LIMIT = 16


@dataclass(frozen=True)
class Asked:
    """What the fake understands of a request body; `limit` is None when it names none."""

    endpoint: str
    prompt: str
    limit: int | None
    stream: bool
    include_usage: bool
    timings_per_token: bool


def read_request(body: bytes, endpoint: str) -> Asked:
    """Raises ValueError with the engine's message."""
    asked: dict[str, Any] = json.loads(body)
    is_chat = endpoint in ("chat", "messages")
    needed = "messages" if is_chat else "prompt"
    if needed not in asked:
        raise ValueError(f"'{needed}' is required")
    limits = (asked.get(name) for name in ("max_completion_tokens", "max_tokens", "n_predict"))
    limit = next((number for number in limits if number is not None), -1)
    return Asked(
        endpoint=endpoint,
        prompt=_text_of(asked["messages"]) if is_chat else dumps(asked["prompt"]),
        limit=None if limit < 0 else limit,
        stream=bool(asked.get("stream")),
        include_usage=bool((asked.get("stream_options") or {}).get("include_usage")),
        timings_per_token=bool(asked.get("timings_per_token")),
    )


def answer_for(asked: Asked, scenario: Scenario, model: str, sequence: int, slot: int) -> Answer:
    """As many tokens as asked for, unless the scenario ends the answer earlier."""
    natural = scenario.answer_tokens
    if asked.limit is None:
        tokens, finish = natural or _TOKENS_WITHOUT_LIMIT, "stop"
    elif natural is not None and natural <= asked.limit:
        tokens, finish = natural, "stop"
    else:
        # The engine generates one token even when asked for none.
        tokens, finish = max(1, asked.limit), "length"
    return Answer(
        endpoint=asked.endpoint,
        model=model,
        sequence=sequence,
        prompt=asked.prompt,
        prompt_tokens=max(1, len(asked.prompt.split())) + scenario.cached_tokens,
        cached_tokens=scenario.cached_tokens,
        tokens=tokens,
        finish=finish,
        slot=slot,
        prompt_ms_per_token=scenario.prompt_ms_per_token,
        generation_ms_per_token=scenario.generation_ms_per_token,
        draft=scenario.draft,
        include_usage=asked.include_usage,
        timings_per_token=asked.timings_per_token,
    )


def _text_of(messages: list[dict[str, Any]]) -> str:
    contents = (message.get("content") for message in messages)
    return " ".join(c if isinstance(c, str) else dumps(c) for c in contents if c is not None)
