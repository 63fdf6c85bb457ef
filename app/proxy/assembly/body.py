"""Which requests can be answered out of a stream, and what the engine is asked instead."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.errors import BodyInvalid
from app.proxy.endpoints import Endpoint
from app.proxy.request_body import UNREADABLE, RequestBody, Turn

_SAMPLING = (
    "temperature top_k top_p min_p top_n_sigma typical_p xtc_probability xtc_threshold dynatemp_range "
    "dynatemp_exponent repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base "
    "dry_allowed_length dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta min_keep samplers "
    "seed logit_bias ignore_eos grammar json_schema"
).split()
_LIMITS = "max_tokens max_completion_tokens n_predict stop".split()
_CACHE = "cache_prompt id_slot n_keep n_cache_reuse".split()
# Of OpenAI's API; the engine passes over them.
_UNHEARD = "user metadata store service_tier safety_identifier prompt_cache_key".split()
_CHAT = (
    "messages tools tool_choice parallel_tool_calls response_format reasoning_format reasoning_effort "
    "chat_template_kwargs"
).split()
_EVERYWHERE = frozenset(("model", "stream", *_SAMPLING, *_LIMITS, *_CACHE, *_UNHEARD))
_PROVEN: Mapping[Endpoint, frozenset[str]] = {
    Endpoint.CHAT_COMPLETIONS: _EVERYWHERE.union(_CHAT),
    Endpoint.COMPLETIONS: _EVERYWHERE.union(("prompt",)),
}
# The value that says the same as no such member.
_NEUTRAL: Mapping[str, object] = {"stream": False, "n": 1, "logprobs": False, "n_probs": 0, "echo": False}
_REASONING_FORMATS = frozenset(("none", "auto", "deepseek"))
_RESPONSE_FORMATS = frozenset(("text", "json_object", "json_schema"))


class _Typed(msgspec.Struct):
    type: str | None = None


_typed_decoder = msgspec.json.Decoder(_Typed)
_parts_decoder = msgspec.json.Decoder(list[_Typed])


def can_assemble(endpoint: Endpoint, body: RequestBody) -> bool:
    """Whether the engine's stream is known to give the answer that it would give to this body.

    Proven, on llama-server of build 11434 and on the embedded engine (`tests/contract/test_assembly_parity.py`):
    text messages with or without content parts, tools and their choice, parallel calls, response formats and
    grammars, reasoning, stop strings, limits, everything that only steers the sampling, slots and the prompt cache,
    with and without speculation; errors before the start and within the stream.

    Refused, because an answer has more or other members than a stream: several choices, log probabilities, lists or
    tokens as a prompt, `return_tokens`, `verbose`, `response_fields`, `stream_options`. Refused, because an answer
    repeats its beginning and a stream does not: `continue_final_message`, and on newer engines any last message of the
    assistant. Refused, because nothing proves them: pictures and sound, `reasoning_format: deepseek-legacy`, limits of
    time and indentation, reasoning budgets, adapters by request, and every member not named here.
    """
    if endpoint not in _PROVEN:
        return False
    try:
        # Of the values only their shape is read here, and not whether their characters are any.
        body.data.decode()
        for name, value in body.members.items():
            if not _is_proven(endpoint, name, value):
                return False
        return "messages" not in body.members or _are_text(body.turns)
    except (BodyInvalid, *UNREADABLE):
        return False


def streaming_body(body: RequestBody) -> bytes:
    """The body that asks for the same as a stream, of a body that `can_assemble` accepts.

    The usage is not in a chat's stream unless it is asked for; the timings with every token tell whether the text of
    the last ones was sent. All other members keep their bytes.
    """
    members: dict[str, Any] = dict(body.members)
    members["stream"] = True
    members["stream_options"] = {"include_usage": True}
    members["timings_per_token"] = True
    return msgspec.json.encode(members)


def _is_proven(endpoint: Endpoint, name: str, value: msgspec.Raw) -> bool:
    if bytes(memoryview(value)[:5]) == b"null":
        return True
    if name in _NEUTRAL:
        neutral: bool = msgspec.json.decode(value) == _NEUTRAL[name]
        return neutral
    return name in _PROVEN[endpoint] and _is_proven_value(name, value)


def _is_proven_value(name: str, value: msgspec.Raw) -> bool:
    match name:
        case "prompt":
            return bytes(memoryview(value)[:1]) == b'"'
        case "response_format":
            return _typed_decoder.decode(value).type in _RESPONSE_FORMATS
        case "reasoning_format":
            return msgspec.json.decode(value, type=str) in _REASONING_FORMATS
        case _:
            return True


def _are_text(turns: Sequence[Turn] | None) -> bool:
    if turns is None or (turns and turns[-1].role == "assistant"):
        return False
    return all(turn.role is not None and _is_text(turn.content) for turn in turns)


def _is_text(content: msgspec.Raw) -> bool:
    match bytes(memoryview(content)[:1]):
        case b'"' | b"n":
            return True
        case b"[":
            return all(part.type == "text" for part in _parts_decoder.decode(content))
        case _:
            return False
