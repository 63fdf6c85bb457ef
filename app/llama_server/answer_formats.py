"""How the engine writes the answers of each kind of endpoint: where its counts stand, and what ends a stream.

Source: `server-task.cpp` of llama.cpp. Chat and text completions in OpenAI's form are read by `timings.py`, embeddings
and rerankings too; the Responses, Anthropic and native forms by the files named after them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.llama_server import answers_anthropic, answers_native, answers_responses
from app.llama_server.timings import EMPTY, EngineReport, report_of_answer, report_of_events

DONE = b"[DONE]"
"""The data of the event that ends a stream of OpenAI's first form."""

_MOST_ANSWER_BYTES = 16 * 1024 * 1024
_VECTORS = b'"data":['


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """One form of answers.

    `of_answer` reads a whole answer, `of_events` the data of the last events of a stream, oldest first (and before them
    of its first, where `first_event_counts`). `is_end` says whether an event is the last of its stream; `ends_unmarked`
    that there is no such event, `finish_reason_is_end` that a finish reason will do where it does not come.
    `output_mark` stands in every event that carries output, and in no other; where it is empty all events do.
    `last_event_is_long` says that the last event repeats prompt or answer. Of an answer in one piece `answer_bytes` are
    kept at most: longer ones are not read, unless their `beginning_suffices`.
    """

    of_answer: Callable[[bytes], EngineReport]
    of_events: Callable[[Sequence[bytes]], EngineReport] = report_of_events
    is_end: Callable[[bytes], bool] = DONE.__eq__
    output_mark: bytes = b""
    may_stream: bool = False
    ends_unmarked: bool = False
    finish_reason_is_end: bool = False
    first_event_counts: bool = False
    last_event_is_long: bool = False
    answer_bytes: int = _MOST_ANSWER_BYTES
    beginning_suffices: bool = False


def report_of_vectors(beginning: bytes) -> EngineReport:
    """What an answer full of vectors reports; the engine writes all else before them, so they need not be read."""
    before, vectors, _ = beginning.partition(_VECTORS)
    if vectors:
        report = report_of_answer(before.rstrip().rstrip(b",") + b"}")
        if report != EMPTY:
            return report
    return report_of_answer(beginning)


def _report_of_nothing(_: Sequence[bytes]) -> EngineReport:
    return EMPTY


def _never(_: bytes) -> bool:
    return False


CHAT = AnswerFormat(report_of_answer, may_stream=True, finish_reason_is_end=True)
RANKING = AnswerFormat(report_of_answer)
VECTORS = AnswerFormat(report_of_vectors, answer_bytes=64 * 1024, beginning_suffices=True)
RESPONSES = AnswerFormat(
    answers_responses.report_of_answer,
    answers_responses.report_of_events,
    answers_responses.is_end,
    output_mark=b'.delta"',
    may_stream=True,
    last_event_is_long=True,
)
ANTHROPIC = AnswerFormat(
    answers_anthropic.report_of_answer,
    answers_anthropic.report_of_events,
    answers_anthropic.is_end,
    output_mark=b'"content_block_delta"',
    may_stream=True,
    finish_reason_is_end=True,
    first_event_counts=True,
)
NATIVE = AnswerFormat(
    answers_native.report_of_answer,
    answers_native.report_of_events,
    answers_native.is_end,
    may_stream=True,
    last_event_is_long=True,
)
OTHER = AnswerFormat(
    report_of_answer,
    _report_of_nothing,
    _never,
    ends_unmarked=True,
    answer_bytes=64 * 1024,
)
"""Answers that report nothing, or of which nothing is known; an error is still told as such."""
