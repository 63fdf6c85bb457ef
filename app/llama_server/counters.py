"""What an engine counts of its own work, as its `/metrics` tells it. Pure.

Counters begin at zero with the process and only grow. What a slot did is added when its request is over, so a long
answer comes as one step. Reading disturbs none of them: it begins the two gauges of averages anew, nothing else.

All but those by position are printed with six significant digits (builds 11434 and 11549), so from a million on they
are rounded: single differences then are coarse, while their sum stays as near as the last count.
"""

import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"llamacpp:(?P<name>\w+)(?:\{position=\"(?P<position>\d{1,4})\"\})? (?P<value>[-+.\w]+)")
_DIGITS = 6
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
# Far more than the longest draft of any method.
_POSITIONS_MOST = 1024
# Past this no engine has come, and a row could not hold the microseconds.
_LARGEST = 9e12


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Counts since the start of an engine, or between two readings. None: the engine does not tell; never zero.

    `accepted_by_position` has, for each position in a draft, how many drafts had that token accepted; it is empty
    while nothing was drafted. `generated_tokens` includes the first token of each answer, `generation_us` does not.
    `rounded_to` is the least step in which the three counts of drafts are told: 1 where they are exact.
    """

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_by_position: tuple[int, ...] | None = None
    generated_tokens: int | None = None
    generation_us: int | None = None
    rounded_to: int = 1

    @property
    def has_drafts(self) -> bool:
        """Whether anything was drafted."""
        return bool(self.drafts or self.draft_tokens or self.accepted_tokens)


UNUSED = EngineCounters(0, 0, 0, (), 0, 0)
"""Where every engine begins."""


def read_counters(text: str) -> EngineCounters:
    """The counters in an engine's Prometheus text. Never raises: what cannot be read is not told."""
    values: dict[str, str] = {}
    positions: dict[int, int] = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.fullmatch(line)) is None:
            continue
        if sample["position"] is None:
            values[sample["name"]] = sample["value"]
        elif sample["name"] == _BY_POSITION and (count := _count(sample["value"])) is not None:
            positions[int(sample["position"])] = count
    told = [values.get(f"spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]
    drafts, draft_tokens, accepted_tokens = map(_count, told)
    seconds = _number(values.get("tokens_predicted_seconds_total"))
    return EngineCounters(
        drafts,
        draft_tokens,
        accepted_tokens,
        _by_position(positions, accepted_tokens),
        generated_tokens=_count(values.get("tokens_predicted_total")),
        generation_us=None if seconds is None else round(seconds * 1e6),
        rounded_to=max(map(_step, told)),
    )


def counted_between(before: EngineCounters, after: EngineCounters) -> EngineCounters:
    """What was counted from one reading to the next.

    Where any count went back the engine has begun anew since: what it counts now was counted after the reading before,
    and what it had counted until then is lost.
    """
    if _went_back(before, after):
        before = UNUSED
    positions = after.accepted_by_position
    if positions is not None:
        known = before.accepted_by_position or ()
        earlier = (*known, *(0 for _ in positions[len(known) :]))
        positions = tuple(now - then for now, then in zip(positions, earlier, strict=True))
    return EngineCounters(
        _less(after.drafts, before.drafts),
        _less(after.draft_tokens, before.draft_tokens),
        _less(after.accepted_tokens, before.accepted_tokens),
        positions,
        generated_tokens=_less(after.generated_tokens, before.generated_tokens),
        generation_us=_less(after.generation_us, before.generation_us),
        rounded_to=after.rounded_to,
    )


def _by_position(counts: dict[int, int], accepted_tokens: int | None) -> tuple[int, ...] | None:
    if not counts:
        # An engine that accepted tokens and has no such series does not tell.
        return () if accepted_tokens == 0 else None
    if max(counts) >= _POSITIONS_MOST:
        return None
    return tuple(counts.get(position, 0) for position in range(max(counts) + 1))


def _went_back(before: EngineCounters, after: EngineCounters) -> bool:
    pairs = [
        (before.drafts, after.drafts),
        (before.draft_tokens, after.draft_tokens),
        (before.accepted_tokens, after.accepted_tokens),
        (before.generated_tokens, after.generated_tokens),
        (before.generation_us, after.generation_us),
    ]
    known, now = before.accepted_by_position or (), after.accepted_by_position
    if now is not None:
        pairs += [*zip(known, now, strict=False)]
        if len(known) > len(now):
            return True
    return any(now < then for then, now in pairs if then is not None and now is not None)


def _less(now: int | None, then: int | None) -> int | None:
    return None if now is None else now - (then or 0)


def _count(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else round(number)


def _number(text: str | None) -> float | None:
    """A counter's value; None where it is none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number <= _LARGEST else None


def _step(text: str | None) -> int:
    """In what steps a printed count can move: a power of ten from where it is printed with an exponent."""
    exponent = re.search(r"e\+(\d{2})$", text or "")
    return 10 ** max(int(exponent[1]) + 1 - _DIGITS, 0) if exponent else 1
