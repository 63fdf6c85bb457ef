"""What the engine says, as recorded from build 11434; nothing here waits or writes."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CREATED_UNIX_SECONDS = 1700000000
_WORDS = ("The", " fake", " café", " answers", " in", " words", " →", " again", ".")


def dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def error(code: int, message: str, kind: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": kind}}


def word(index: int) -> str:
    """The text of the index-th generated token; it is the same for every request."""
    return _WORDS[index] if index < len(_WORDS) else f" {_WORDS[index % len(_WORDS)].strip()}"


@dataclass(frozen=True)
class Answer:
    """One completion before it is rendered for an endpoint."""

    endpoint: str  # "chat", "completions" or "completion"; "messages" is rendered elsewhere
    model: str
    sequence: int
    prompt: str
    prompt_tokens: int  # cached ones included
    cached_tokens: int
    tokens: int
    finish: str
    slot: int
    prompt_ms_per_token: float
    generation_ms_per_token: float
    draft: Mapping[str, Any] | None
    include_usage: bool
    timings_per_token: bool

    @property
    def text(self) -> str:
        return "".join(word(index) for index in range(self.tokens))

    def timings(self, tokens: int | None = None) -> dict[str, float]:
        n = self.tokens if tokens is None else tokens
        prompt_n = self.prompt_tokens - self.cached_tokens
        prompt_ms = prompt_n * self.prompt_ms_per_token
        # The first token comes out of prompt processing, so its time is not counted.
        generation_ms = (n - 1) * self.generation_ms_per_token or 0.001
        timings: dict[str, float] = {
            "cache_n": self.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": self.prompt_ms_per_token,
            "prompt_per_second": 1e3 / self.prompt_ms_per_token,
            "predicted_n": n,
            "predicted_ms": generation_ms,
            "predicted_per_token_ms": generation_ms / (n - 1) if n > 1 else 0.0,
            "predicted_per_second": (n - 1) / generation_ms * 1e3,
        }
        if self.draft and (drafted := self.draft["n"] * n // self.tokens):
            timings["draft_n"] = drafted
            timings["draft_n_accepted"] = self.draft["accepted"] * n // self.tokens
        return timings

    def whole(self) -> dict[str, Any]:
        if self.endpoint == "completion":
            return self._stop_event() | {"content": self.text}
        if self.endpoint == "completions":
            return self._text_event(self.text, self.finish)
        message = {"role": "assistant", "content": self.text}
        return {
            "choices": [{"finish_reason": self.finish, "index": 0, "message": message}],
            "created": CREATED_UNIX_SECONDS, "model": self.model,
            "system_fingerprint": "b0-unknown", "object": "chat.completion",
            "usage": self._usage(), "id": self.id(), "timings": self.timings(),
        }  # fmt: skip

    def events(self) -> Iterator[str]:
        """The data events of the stream, `[DONE]` among them where the engine sends it."""
        parts = {
            "chat": self._chat_events,
            "completions": self._text_events,
            "completion": self._raw_events,
        }
        for event in parts[self.endpoint]():
            yield f"data: {dumps(event)}\n\n"
        if self.endpoint != "completion":
            yield "data: [DONE]\n\n"

    def _chat_events(self) -> Iterator[dict[str, Any]]:
        yield self._chat_event({"role": "assistant", "content": None})
        for index in range(self.tokens):
            event = self._chat_event({"content": word(index)})
            yield event | ({"timings": self.timings(index + 1)} if self.timings_per_token else {})
        last = self._chat_event({}, self.finish)
        if not self.include_usage:
            yield last | {"timings": self.timings()}
            return
        yield last
        usage = {"usage": self._usage(), "timings": self.timings()}
        yield self._chat_event({}) | {"choices": []} | usage

    def _text_events(self) -> Iterator[dict[str, Any]]:
        for index in range(self.tokens):
            event = self._text_event(word(index), None)
            yield event | ({"timings": self.timings(index + 1)} if self.timings_per_token else {})
        yield self._text_event("", self.finish)

    def _raw_events(self) -> Iterator[dict[str, Any]]:
        for index in range(self.tokens):
            event = {
                "index": 0, "content": word(index), "tokens": [100 + index], "stop": False,
                "id_slot": -1, "tokens_predicted": index + 1,
                "tokens_evaluated": self.prompt_tokens,
            }  # fmt: skip
            yield event | ({"timings": self.timings(index + 1)} if self.timings_per_token else {})
        yield self._stop_event()

    def _stop_event(self) -> dict[str, Any]:
        return {
            "index": 0, "content": "", "tokens": [], "id_slot": self.slot, "stop": True,
            "model": self.model, "tokens_predicted": self.tokens,
            "tokens_evaluated": self.prompt_tokens, "generation_settings": {},
            "prompt": self.prompt, "has_new_line": False, "truncated": False,
            "stop_type": "limit" if self.finish == "length" else "eos", "stopping_word": "",
            "tokens_cached": self.prompt_tokens + self.tokens - 1, "timings": self.timings(),
        }  # fmt: skip

    def _chat_event(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "choices": [{"finish_reason": finish, "index": 0, "delta": delta}],
            "created": CREATED_UNIX_SECONDS, "id": self.id(), "model": self.model,
            "system_fingerprint": "b0-unknown", "object": "chat.completion.chunk",
        }  # fmt: skip

    def _text_event(self, text: str, finish: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        last = finish is not None
        return {
            "choices": [choice], "created": CREATED_UNIX_SECONDS, "model": self.model,
            "system_fingerprint": "b0-unknown", "object": "text_completion",
            **({"usage": self._usage()} if last else {}),
            "id": self.id(),
            **({"timings": self.timings()} if last else {}),
        }  # fmt: skip

    def _usage(self) -> dict[str, Any]:
        return {
            "completion_tokens": self.tokens, "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }  # fmt: skip

    def id(self) -> str:
        return "chatcmpl-" + hashlib.sha256(str(self.sequence).encode()).hexdigest()[:32]
