"""What the engine reports in answers of its own form (`/completion`, `/infill`).

The last event of a stream has the timings; every other says `"stop": false`. `response_fields` may leave out any of
it. Several prompts or choices in one request are told apart by `index`: an answer in one piece is then a list.
"""

from collections.abc import Sequence

import msgspec

from app.llama_server.timings import EMPTY, EngineReport, Failure, Timings, TokenCounts, decoded, engine_report


class _Answer(msgspec.Struct):
    index: int | None = None
    stop: bool | None = None
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: Timings | None = None
    error: Failure | str | None = None


_whole = msgspec.json.Decoder(_Answer | list[_Answer])
_event = msgspec.json.Decoder(_Answer)


def report_of_answer(body: bytes) -> EngineReport:
    """What a whole answer reports; an empty report where the bytes are not such an answer."""
    answers = decoded(_whole, body)
    if answers is None:
        return EMPTY
    if isinstance(answers, list):
        return _sum([_report(answer) for answer in answers])
    return _report(answers)


def report_of_events(events: Sequence[bytes]) -> EngineReport:
    """What the last events of a stream report, oldest first.

    Of several prompts or choices the last events do not tell all, so nothing is counted.
    """
    answers = [answer for answer in (decoded(_event, data) for data in events) if answer is not None]
    if not answers:
        return EMPTY
    last = answers[-1]
    if any(answer.index for answer in answers):
        return engine_report(None, TokenCounts(), _stop_type(last), last.error)
    timings = next((answer.timings for answer in reversed(answers) if answer.timings), None)
    return engine_report(timings, _counts(last), _stop_type(last), last.error)


def is_end(data: bytes) -> bool:
    """Whether the stream ends with this event."""
    answer = decoded(_event, data)
    return answer is not None and answer.stop is not False and answer.error is None


def _report(answer: _Answer) -> EngineReport:
    return engine_report(answer.timings, _counts(answer), _stop_type(answer), answer.error)


def _counts(answer: _Answer) -> TokenCounts:
    return TokenCounts(prompt_tokens=answer.tokens_evaluated, generated_tokens=answer.tokens_predicted)


def _stop_type(answer: _Answer) -> str | None:
    return None if answer.stop_type == "none" else answer.stop_type


def _sum(reports: Sequence[EngineReport]) -> EngineReport:
    """The counts of all together; what one of them did not tell is not known. They ran together, so their times say
    nothing.
    """

    def total(name: str) -> int | None:
        counts = [getattr(report, name) for report in reports]
        return sum(counts) if counts and None not in counts else None

    reasons = {report.finish_reason for report in reports}
    return EngineReport(
        prompt_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        generated_tokens=total("generated_tokens"),
        draft_tokens=total("draft_tokens"),
        accepted_tokens=total("accepted_tokens"),
        finish_reason=reasons.pop() if len(reasons) == 1 else None,
    )
