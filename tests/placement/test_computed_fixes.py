"""Fixes of rules that know no bytes, after the plan."""

from typing import Any

from fixtures.oracle import SparseFolder
from fixtures.planning import Question, cards, question

from app.findings import Finding
from app.placement.rules import judge
from app.placement.rules.computed import with_computed_fixes


def computed(asked: Question, rule: str) -> tuple[Finding, Finding]:
    """A finding of a rule that knows no bytes, before and after."""
    before = judge(asked.case)
    after = with_computed_fixes(before, asked.case, asked.planned, asked.replan)
    assert [found.rule for found in after] == [found.rule for found in before]
    (pair,) = [(plain, fixed) for plain, fixed in zip(before, after, strict=True) if plain.rule == rule]
    return pair


def dflash(device: str, **more: Any) -> dict[str, Any]:
    return {"speculation": {"method": "dflash", "draft": {"device": device}}, "context": {"size": 8192}, **more}


def test_an_open_split_is_computed(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_32b", cards(24, 12))
    plain, fixed = computed(asked, "split-implicit")
    (fix,) = fixed.fixes
    after = asked.with_fix(fix).planned
    by_free = asked.with_fix(plain.fixes[0]).planned
    assert min(d.headroom_bytes for d in after.devices) > min(d.headroom_bytes for d in by_free.devices)
    assert after.fits


def test_an_open_split_stays_as_it_was_where_none_fits(sparse: SparseFolder) -> None:
    plain, fixed = computed(question(sparse, "qwen3_32b", cards(8, 8)), "split-implicit")
    assert fixed.fixes == list(plain.fixes)


def test_a_draft_that_moves_gets_a_split_with_room_for_it(sparse: SparseFolder) -> None:
    """The second card is full: the draft fits there once layers have moved to the first."""
    asked = question(
        sparse, "qwen3_8b", cards(24, 6), "dflash_qwen3_8b_head", **dflash("CUDA0", placement={"tensor_split": [2, 1]})
    )
    assert asked.planned.fits
    plain, fixed = computed(asked, "draft-apart")
    assert not asked.with_fix(plain.fixes[0]).planned.fits
    (fix,) = fixed.fixes
    assert asked.with_fix(fix).planned.fits
    assert fix.patch["speculation"] == plain.fixes[0].patch["speculation"]
    assert "tensor_split" in fix.patch["placement"]


def test_a_draft_on_the_host_gets_room_from_experts(sparse: SparseFolder) -> None:
    """No split on one card: the draft fits once the experts of more layers are on the host."""
    asked = question(
        sparse,
        "qwen3moe_30b",
        cards(12.8),
        "dflash_qwen3moe_30b_head",
        **dflash("none", placement={"cpu_moe_layers": 20}),
    )
    assert asked.planned.fits
    _, fixed = computed(asked, "draft-on-host")
    (fix,) = fixed.fixes
    assert fix.patch["placement"]["cpu_moe_layers"] > 20
    after = asked.with_fix(fix)
    assert after.errors() == set()


def test_a_fix_without_room_goes_where_the_launch_fits_as_it_is(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_8b", cards(10), context={"size": 16_384, "slots": 4})
    plain, fixed = computed(asked, "slots-divide-context")
    assert asked.planned.fits
    assert len(plain.fixes) > len(fixed.fixes) >= 1
    assert all(asked.with_fix(fix).planned.fits for fix in fixed.fixes)


def test_fixes_that_are_not_about_memory_stay(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_8b", cards(24, 24), env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    plain, fixed = computed(asked, "device-order")
    assert plain == fixed
    assert fixed.fixes
