"""Speculation at run time: does it run, is it accepted, does it pay."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fixtures.evidences import as_planned, found, measured, patched

from app.findings import Severity
from app.instances.diagnosis import degradations_of, diagnose
from app.instances.diagnosis.speculation import DRAFT_TOKENS_LEAST, NGRAM_DRAFT_TOKENS_LEAST
from app.instances.diagnosis.speed import REQUESTS_LEAST, TOKENS_LEAST, rate_of
from app.instances.evidence import Baseline, Tally
from app.launch.report import Launch
from app.speculative.parameters import Method

INACTIVE = "speculation-inactive"


@pytest.fixture(scope="session")
def copying(large: Callable[..., Launch]) -> Launch:
    return large("qwen3_8b", speculation={"method": "ngram-mod"}, placement={"devices": ["CUDA0"]})


@pytest.fixture(scope="session")
def both(large: Callable[..., Launch]) -> Launch:
    """A draft model, and before it the text."""
    return large(
        "qwen3_8b",
        "qwen3_06b_draft",
        speculation={"method": "draft", "also": ["ngram-mod"], "draft": {"device": "CUDA0"}},
        placement={"devices": ["CUDA0"]},
        context={"size": 8192},
    )


@pytest.mark.parametrize(
    ("speculates", "methods", "is_found"),
    [
        (True, ["dspark"], False),
        (True, None, False),
        (None, ["dspark"], False),
        (False, ["dspark"], True),
        (False, None, True),
        (None, None, True),
        (True, [], True),
        (None, [], True),
    ],
)
def test_speculation_is_proven_by_slots_or_output(
    speculates: bool | None, methods: list[str] | None, is_found: bool, drafted: Launch
) -> None:
    evidence = as_planned(drafted, speculates=speculates, measured=replace(measured(drafted), methods=methods))
    verdict = found(INACTIVE, evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert degradations_of(diagnose(evidence)) == (INACTIVE,)
        off = patched(drafted.profile, verdict.fixes[-1])
        assert off.speculation.methods == ()
        assert off.speculation.draft is None
        (budget,) = [device for device in drafted.report.devices if device["name"] == "CUDA0"]
        drafts = sum(n_bytes for term, n_bytes in budget["terms"].items() if term.startswith("draft_"))
        assert verdict.fixes[-1].effect_bytes == drafts > 0


def test_a_method_that_is_missing_is_named(both: Launch) -> None:
    assert found(INACTIVE, as_planned(both)) is None
    verdict = found(INACTIVE, as_planned(both, measured=replace(measured(both), methods=["ngram-mod"])))
    assert verdict is not None
    assert verdict.observed == "no draft"


def test_where_none_is_asked_for_none_is_missed(plain: Launch) -> None:
    for speculates in (False, None):
        assert diagnose(as_planned(plain, speculates=speculates, measured=None)) == []


@pytest.mark.parametrize(
    ("drafts", "accepted", "is_found"),
    [
        (DRAFT_TOKENS_LEAST, 9, True),
        (DRAFT_TOKENS_LEAST, 10, False),
        (DRAFT_TOKENS_LEAST - 1, 0, False),
        (633, 1, True),
        (0, 0, False),
    ],
)
def test_acceptance_near_zero_is_a_mismatch(drafts: int, accepted: int, is_found: bool, drafted: Launch) -> None:
    evidence = as_planned(drafted, tally=Tally(100, 20_100, 400.0, drafts, accepted))
    verdict = found("acceptance-collapsed", evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert verdict.severity is Severity.WARNING
        assert "do not match" in verdict.message
        assert f"{drafts}" in verdict.message
        assert patched(drafted.profile, verdict.fixes[0]).speculation.method is Method.NONE


@pytest.mark.parametrize("least", [NGRAM_DRAFT_TOKENS_LEAST])
def test_text_that_does_not_repeat_is_judged_late(least: int, copying: Launch, both: Launch) -> None:
    """A few drafts of 64 tokens prove nothing, and no draft is healthy."""
    for launch, why in ((copying, "does not repeat"), (both, "do not match")):
        few, many = (as_planned(launch, tally=Tally(100, 20_100, 400.0, drafts, 0)) for drafts in (least - 1, least))
        assert found("acceptance-collapsed", few) is None
        verdict = found("acceptance-collapsed", many)
        assert verdict is not None
        assert why in verdict.message
    assert found("acceptance-collapsed", as_planned(copying, tally=Tally(100, 20_100, 400.0))) is None


def tally(rate: float, requests: int = 100, tokens: int = 20_100) -> dict[str, Any]:
    """Counts at this generation rate; the first token of each request takes no time."""
    return {"requests": requests, "generated_tokens": tokens, "generation_seconds": (tokens - requests) / rate}


@pytest.mark.parametrize(("rate", "is_found"), [(19.9, True), (47.4, True), (47.6, False), (100.0, False)])
def test_speculation_that_costs_more_than_it_gives(rate: float, is_found: bool, drafted: Launch) -> None:
    evidence = as_planned(drafted, tally=Tally(**tally(rate)), baseline=Baseline("plain", **tally(50.0)))
    verdict = found("slower-than-baseline", evidence)
    assert (verdict is not None) is is_found
    if verdict is not None:
        assert f"{rate:.1f} tokens/s" in verdict.message
        assert f"{rate / 50:.2f} of that" in verdict.message
        assert verdict.evidence.count("100 requests with 20,100 tokens") == 2
        off, shorter = (patched(drafted.profile, fix).speculation for fix in verdict.fixes)
        assert off.methods == ()
        assert shorter.draft_tokens_max == 2
        assert degradations_of(diagnose(evidence)) == ("slower-than-baseline",)


@pytest.mark.parametrize("side", ["tally", "baseline"])
@pytest.mark.parametrize(
    ("requests", "tokens", "is_found"),
    [
        (REQUESTS_LEAST, TOKENS_LEAST, True),
        (REQUESTS_LEAST - 1, TOKENS_LEAST, False),
        (REQUESTS_LEAST, TOKENS_LEAST - 1, False),
    ],
)
def test_both_sides_need_enough(side: str, requests: int, tokens: int, is_found: bool, drafted: Launch) -> None:
    slow, fast = tally(10.0), tally(50.0)
    sized = tally(10.0 if side == "tally" else 50.0, requests, tokens)
    slow, fast = (sized, fast) if side == "tally" else (slow, sized)
    evidence = as_planned(drafted, tally=Tally(**slow), baseline=Baseline("plain", **fast))
    assert (found("slower-than-baseline", evidence) is not None) is is_found


def test_a_launch_that_does_not_speculate_is_no_slower_than_itself(plain: Launch, copying: Launch) -> None:
    for launch, is_found in ((plain, False), (copying, True)):
        evidence = as_planned(launch, tally=Tally(**tally(10.0)), baseline=Baseline("x", **tally(50.0)))
        verdict = found("slower-than-baseline", evidence)
        assert (verdict is not None) is is_found
    assert verdict is not None
    # `draft_tokens_max` does not bound what is copied.
    assert [fix.description for fix in verdict.fixes] == ["No speculation"]


def test_a_rate_needs_a_second_token() -> None:
    assert rate_of(Tally(**tally(50.0))) == pytest.approx(50.0)
    assert rate_of(Tally(3, 3, 1.0)) is None
    assert rate_of(Tally(3, 30, 0.0)) is None
