"""The engine's own counters: read from its text, and what lies between two readings."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llama_server.counters import UNUSED, EngineCounters, counted_between, read_counters

# As build 11434 answered after one request of 32 tokens, without the help of each series.
DRAFTED = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 9
llamacpp:prompt_seconds_total 0.003203
llamacpp:tokens_predicted_total 32
llamacpp:tokens_predicted_seconds_total 0.002713
llamacpp:n_decode_total 11
llamacpp:spec_decode_num_draft_tokens_total 28
llamacpp:spec_decode_num_accepted_tokens_total 21
llamacpp:spec_decode_num_drafts_total 10
# TYPE llamacpp:predicted_tokens_seconds gauge
llamacpp:predicted_tokens_seconds 11426.5
llamacpp:requests_processing 0
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 8
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 4
"""
READ = EngineCounters(10, 28, 21, (9, 8, 4), 32, 2713)


def test_what_an_engine_counts() -> None:
    assert read_counters(DRAFTED) == READ
    assert READ.has_drafts
    assert not UNUSED.has_drafts


def test_before_the_first_draft_there_are_no_positions() -> None:
    text, _ = DRAFTED.split("# TYPE llamacpp:spec_decode_num_accepted")
    text = text.replace(" 28", " 0").replace(" 21", " 0").replace("drafts_total 10", "drafts_total 0")
    assert read_counters(text) == EngineCounters(0, 0, 0, (), 32, 2713)


def test_what_is_not_told_is_not_zero() -> None:
    without = "\n".join(line for line in DRAFTED.splitlines() if "spec_decode" not in line)
    assert read_counters(without) == EngineCounters(generated_tokens=32, generation_us=2713)
    assert read_counters("") == read_counters("<html>") == EngineCounters()
    no_positions = "\n".join(line for line in DRAFTED.splitlines() if "per_pos" not in line)
    assert read_counters(no_positions).accepted_by_position is None
    assert read_counters(DRAFTED.replace(" 28", " nan").replace(" 10", " -1")).draft_tokens is None


def test_counts_from_a_million_on_are_rounded_and_said_to_be() -> None:
    text = DRAFTED.replace("draft_tokens_total 28", "draft_tokens_total 1.23457e+06")
    assert (read_counters(text).draft_tokens, read_counters(text).rounded_to) == (1_234_570, 10)
    text = text.replace("drafts_total 10", "drafts_total 1e+08")
    assert (read_counters(text).drafts, read_counters(text).rounded_to) == (100_000_000, 1000)
    # Counts by position are printed in full, and so may those of other builds be.
    exact = DRAFTED.replace('"0"} 9', '"0"} 12345678').replace("drafts_total 10", "drafts_total 12345678")
    assert read_counters(exact).accepted_by_position == (12_345_678, 8, 4)
    assert (read_counters(exact).drafts, read_counters(exact).rounded_to) == (12_345_678, 1)


@pytest.mark.parametrize("value", ["1e+309", "9" * 5000, "1e+99", "inf", "0x10", "1_0x", "e+06"])
def test_a_number_that_is_none_is_not_told(value: str) -> None:
    text = DRAFTED.replace("drafts_total 10", f"drafts_total {value}").replace("0.002713", value)
    assert (read_counters(text).drafts, read_counters(text).generation_us) == (None, None)


@given(st.text() | st.builds(lambda name, value: f"llamacpp:{name} {value}", st.text(), st.text()))
def test_any_text_can_be_read(text: str) -> None:
    assert read_counters(text).rounded_to >= 1


counts = st.integers(0, 10**9)


@st.composite
def readings(draw: st.DrawFn) -> EngineCounters:
    positions = draw(st.lists(counts, max_size=6))
    return EngineCounters(*(draw(counts) for _ in range(3)), tuple(positions), draw(counts), draw(counts))


def plus(first: EngineCounters, second: EngineCounters) -> EngineCounters:
    """An engine that goes on counting."""
    known, more = first.accepted_by_position or (), second.accepted_by_position or ()
    length = max(len(known), len(more))
    positions = [sum(pair) for pair in zip(_padded(known, length), _padded(more, length), strict=True)]
    sums = [a + b for a, b in zip(_plain(first), _plain(second), strict=True)]
    return EngineCounters(*sums[:3], tuple(positions), *sums[3:])


def _plain(reading: EngineCounters) -> list[int]:
    return [value for value in astuple(reading)[:-1] if isinstance(value, int)]


def _padded(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (*values, *(0 for _ in range(length - len(values))))


@given(readings(), readings())
def test_the_difference_is_what_came_since(before: EngineCounters, more: EngineCounters) -> None:
    found = counted_between(before, plus(before, more))
    length = max(len(before.accepted_by_position or ()), len(more.accepted_by_position or ()))
    assert found.accepted_by_position == _padded(more.accepted_by_position or (), length)
    assert _plain(found) == _plain(more)


@given(st.lists(readings(), min_size=1, max_size=6))
def test_differences_add_up_to_the_last_reading(steps: list[EngineCounters]) -> None:
    reading, total = UNUSED, UNUSED
    for step in steps:
        grown = plus(reading, step)
        total, reading = plus(total, counted_between(reading, grown)), grown
    assert total == reading
    assert counted_between(UNUSED, reading) == reading


@given(readings(), readings())
def test_a_count_that_went_back_is_a_new_beginning(before: EngineCounters, after: EngineCounters) -> None:
    found = counted_between(before, after)
    assert min((*_plain(found), *(found.accepted_by_position or (0,)))) >= 0
    if any(now < then for now, then in zip(_plain(after), _plain(before), strict=True)):
        assert found == after


def test_the_smallest_step_back_is_seen() -> None:
    assert counted_between(READ, EngineCounters(10, 28, 21, (9, 8, 3), 32, 2713)).drafts == 10
    assert counted_between(READ, EngineCounters(10, 28, 21, (9, 8), 32, 2713)).drafts == 10
    assert counted_between(READ, READ) == EngineCounters(0, 0, 0, (0, 0, 0), 0, 0)


def test_what_one_reading_did_not_tell() -> None:
    silent = EngineCounters(generated_tokens=40, generation_us=3000)
    assert counted_between(UNUSED, silent) == silent
    assert counted_between(silent, EngineCounters(generated_tokens=41)) == EngineCounters(generated_tokens=1)
