"""What the engine reports about one request, decoded from the bytes of an answer in the form of OpenAI's chat.

Source: `server-common.cpp` (timings) and `server-task.cpp` (answers) of llama.cpp. `prompt_n` leaves cached tokens
out, `usage.prompt_tokens` counts them in; `draft_n` is absent when nothing was drafted. Whatever is missing or of
an unexpected shape is None: a number that was not reported is not zero. The engine's other forms of answers are in
`answer_formats.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_LARGEST = 2**53


class EngineReport(msgspec.Struct, frozen=True, gc=False):
    """Counts and times of one request, as the engine measured them; None where it said nothing.

    `prompt_tokens` includes `cached_tokens`. `generation_us` starts at the end of the prompt, so it covers one token
    less than `generated_tokens`. `error` is the kind of error that the engine names, not its message: that may quote
    the prompt.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    prompt_us: int | None = None
    generation_us: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None


EMPTY = EngineReport()


class Timings(msgspec.Struct):
    """`timings` of an answer of any form."""

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class Failure(msgspec.Struct):
    """`error` of an answer of any form, without its message."""

    type: str | None = None
    code: int | str | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What an answer says of its tokens beside the timings; `prompt_tokens` includes `cached_tokens`."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None


class _Answer(msgspec.Struct):
    timings: Timings | None = None
    usage: _Usage | None = None
    choices: list[_Choice] | None = None
    error: Failure | str | None = None


_KIND = re.compile(r"[a-zA-Z_]{1,64}")
_NOTHING = _Answer()
_NO_TIMINGS = Timings()
_NO_USAGE = _Usage()
_NO_DETAILS = _PromptDetails()
_decoder = msgspec.json.Decoder(_Answer)


def report_of_answer(body: bytes) -> EngineReport:
    """What a whole JSON answer reports; an empty report where the bytes are not such an answer."""
    return _report([_decode(body)])


def report_of_events(events: Sequence[bytes]) -> EngineReport:
    """What the last data events of a stream report, oldest first; the newest word on each matter counts.

    The finish reason may stand one event before the timings (`stream_options.include_usage`).
    """
    return _report([_decode(event) for event in reversed(events)])


def _decode(data: bytes) -> _Answer:
    return decoded(_decoder, data) or _NOTHING


def decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T | None:
    """The data as what the decoder makes of it; None where it is nothing of the kind."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def engine_report(
    timings: Timings | None, usage: TokenCounts, finish_reason: str | None, error: Failure | str | None
) -> EngineReport:
    """The report of an answer: timings are believed before usage, since they are of the same counting."""
    timings = timings or _NO_TIMINGS
    processed = first_count(timings.prompt_n)
    prompt = None if processed is None else processed + (first_count(timings.cache_n) or 0)
    return EngineReport(
        prompt_tokens=first_count(prompt, usage.prompt_tokens),
        cached_tokens=first_count(timings.cache_n, usage.cached_tokens),
        generated_tokens=first_count(timings.predicted_n, usage.generated_tokens),
        prompt_us=_microseconds(timings.prompt_ms),
        generation_us=_microseconds(timings.predicted_ms),
        draft_tokens=first_count(timings.draft_n),
        accepted_tokens=first_count(timings.draft_n_accepted),
        finish_reason=finish_reason,
        error=_kind_of(error),
    )


def first_count(*counts: int | None) -> int | None:
    """The first count that can be one: known, not negative, not absurd."""
    for count in counts:
        if count is not None and 0 <= count < _LARGEST:
            return count
    return None


def _report(newest_first: Sequence[_Answer]) -> EngineReport:
    timings, usage, error = None, None, None
    for answer in newest_first:
        timings = timings or answer.timings
        usage = usage or answer.usage
        error = answer.error if error is None else error
    finish_reason = _finish_reason(newest_first)
    if timings is None and usage is None and error is None:
        return EngineReport(finish_reason=finish_reason)
    usage = usage or _NO_USAGE
    details = usage.prompt_tokens_details or _NO_DETAILS
    counts = TokenCounts(usage.prompt_tokens, details.cached_tokens, usage.completion_tokens)
    return engine_report(timings, counts, finish_reason, error)


def _kind_of(error: Failure | str | None) -> str | None:
    """A word such as `exceed_context_size_error`, with the code where there is one."""
    if error is None:
        return None
    if isinstance(error, str) or error.type is None or _KIND.fullmatch(error.type) is None:
        return "error"
    return error.type if not isinstance(error.code, int) else f"{error.type} ({error.code})"


def _finish_reason(newest_first: Sequence[_Answer]) -> str | None:
    for answer in newest_first:
        for choice in answer.choices or ():
            if choice.finish_reason is not None:
                return choice.finish_reason
    return None


def _microseconds(milliseconds: float | None) -> int | None:
    if milliseconds is None or not 0 <= milliseconds * 1000 < _LARGEST:
        return None
    return round(milliseconds * 1000)
