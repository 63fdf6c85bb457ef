"""Fixes for what does not fit: each is applied as a user would, and must then pass every rule."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import GIB, Question, cards, question
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.findings import Finding, Fix

explored = settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_PLANS_MAX = 250


def refused(asked: Question) -> Finding:
    asked.plans = 0
    found = asked.found("device-memory")
    assert found is not None
    assert asked.plans < _PLANS_MAX
    return found


def fixed(asked: Question, found: Finding, known: Sequence[str] = ()) -> list[Fix]:
    """The fixes with a patch, each of which was applied and judged."""
    busiest = min(asked.planned.devices, key=lambda budget: budget.headroom_bytes)
    with_patch = [fix for fix in found.fixes if fix.patch]
    for fix in with_patch:
        after = asked.with_fix(fix)
        assert after.errors() <= set(known), fix
        budget = after.planned.device(busiest.name)
        assert budget is not None
        assert fix.effect_bytes == max(0, busiest.required_bytes - budget.required_bytes), fix
    return with_patch


def test_hybrid_whose_split_overloads_the_last_device_gets_a_split_that_fits(sparse: SparseFolder) -> None:
    asked = question(
        sparse,
        "glm4moe_air",
        cards(24, 24),
        placement={"cpu_moe_layers": 24, "tensor_split": [1, 1]},
        context={"size": 32_768},
    )
    found = refused(asked)
    assert found.message.startswith("CUDA1 lacks")
    fixes = fixed(asked, found)
    assert any(list(fix.patch) == ["placement"] and "tensor_split" in fix.patch["placement"] for fix in fixes)


def test_an_mtp_profile_whose_context_does_not_fit(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen35_27b", cards(24), speculation={"method": "mtp"}, context={"size": 262_144})
    found = refused(asked)
    fixes = fixed(asked, found)
    sizes = [fix.patch["context"]["size"] for fix in fixes if "size" in fix.patch.get("context", {})]
    assert sizes
    # It is the longest of its step: 1,024 tokens more do not fit.
    longer = question(sparse, "qwen35_27b", cards(24), speculation={"method": "mtp"}, context={"size": sizes[0] + 1024})
    assert longer.found("device-memory") is not None


@pytest.mark.parametrize(
    ("target", "draft", "known"),
    [
        ("qwen35moe_122b", "dflash_qwen35moe_122b", ()),
        # Its architecture hands out no hidden states in the build that the rules know.
        ("laguna_118b", "dflash_laguna", ("draft-target-architecture",)),
    ],
)
def test_a_118b_mixture_with_a_bf16_draft_on_two_cards_of_32(
    sparse: SparseFolder, target: str, draft: str, known: Sequence[str]
) -> None:
    asked = question(
        sparse,
        target,
        cards(32, 32),
        draft,
        speculation={"method": "dflash", "draft": {"device": "CUDA1"}, "draft_tokens_max": 7},
        placement={"tensor_split": [1, 1]},
        context={"size": 32_768},
    )
    found = refused(asked)
    fixes = fixed(asked, found, known)
    moving = [fix for fix in fixes if "cpu_moe_layers" in fix.patch.get("placement", {})]
    assert moving
    for fix in moving:
        # The draft stays whole, and beside the output.
        assert "draft" not in fix.patch.get("speculation", {})
        assert asked.with_fix(fix).planned.output_device == "CUDA1"
    counts = [fix.patch["placement"]["cpu_moe_layers"] for fix in moving]
    assert counts == sorted(counts, reverse=True)
    fewer = moving[-1].patch["placement"]["cpu_moe_layers"] - 1
    assert asked.found("draft-precision") is not None
    patch = {"placement": {**moving[-1].patch["placement"], "cpu_moe_layers": fewer}}
    assert not asked.with_fix(Fix("one layer less", patch)).planned.fits


def test_fixes_come_in_the_order_of_what_they_cost(sparse: SparseFolder) -> None:
    """Context, cache types, layers on the host, another file, no draft model."""
    asked = question(
        sparse,
        "qwen3_8b",
        cards(12),
        "dflash_qwen3_8b",
        speculation={"method": "dflash", "draft": {"device": "CUDA0"}},
        context={"size": 40_960},
    )
    found = refused(asked)
    fixed(asked, found)
    kinds = [
        "context" if "size" in fix.patch.get("context", {}) else
        "cache" if "k_type" in fix.patch.get("context", {}) else
        "layers" if "placement" in fix.patch else
        "method" if "speculation" in fix.patch else
        "file"
        for fix in found.fixes
    ]  # fmt: skip
    assert kinds == ["context", "cache", "layers", "method"]


def test_a_draft_in_q8_is_named_where_that_alone_would_do(sparse: SparseFolder) -> None:
    def asked(size: float) -> Question:
        return question(
            sparse,
            "qwen3_8b",
            cards(size),
            "dflash_qwen3_8b_head",
            speculation={"method": "dflash", "draft": {"device": "CUDA0"}},
            context={"size": 8192},
        )

    needed = asked(24).planned.devices[0].required_bytes + (1 << 29)
    within = [fix for fix in refused(asked((needed - GIB) / GIB)).fixes if not fix.patch]
    beyond = [fix for fix in refused(asked((needed - 2 * GIB) / GIB)).fixes if not fix.patch]
    assert [fix.description.split()[0] for fix in within] == ["Look"]
    assert beyond == []


def test_fewer_draft_tokens_where_states_are_kept_for_each(sparse: SparseFolder) -> None:
    asked = question(
        sparse,
        "qwen35moe_35b",
        cards(24),
        speculation={"method": "mtp", "draft_tokens_max": 64},
        context={"size": 8192},
    )
    found = refused(asked)
    first = fixed(asked, found)[0]
    fewer = first.patch["speculation"]["draft_tokens_max"]
    assert 0 < fewer < 64
    one_more = Fix("", {"speculation": {"draft_tokens_max": fewer + 1}})
    assert not asked.with_fix(one_more).planned.fits


def test_mtp_heads_instead_of_a_draft_model(sparse: SparseFolder) -> None:
    asked = question(
        sparse,
        "qwen35moe_35b",
        cards(24),
        "qwen3_06b_draft",
        speculation={"method": "draft", "draft": {"device": "CUDA0"}},
        context={"size": 32_768},
    )
    found = refused(asked)
    fixes = fixed(asked, found, ["draft-vocabulary"])
    assert any(fix.patch.get("speculation", {}).get("method") == "mtp" for fix in fixes)


def test_what_another_rule_refuses_is_not_offered(sparse: SparseFolder) -> None:
    """The heads are there, and the engine has no graph for them in that architecture."""
    asked = question(
        sparse,
        "qwen35moe_35b",
        cards(24),
        "qwen3_06b_draft",
        speculation={"method": "draft", "draft": {"device": "CUDA0"}},
        context={"size": 32_768},
    )
    assert asked.case.target is not None
    other = replace(asked.case.target, architecture="granite")
    fixes = refused(replace(asked, case=replace(asked.case, target=other))).fixes
    assert fixes
    assert all(fix.patch.get("speculation", {}).get("method") != "mtp" for fix in fixes)


def test_a_fix_for_devices_makes_the_prompt_cache_smaller_where_the_host_is_short_too(sparse: SparseFolder) -> None:
    def asked(host_gib: float) -> Question:
        return question(
            sparse,
            "qwen3_32b",
            cards(24, host_gib=host_gib),
            context={"size": 32_768, "prompt_cache_bytes": 8 * GIB},
        )

    assert all("prompt_cache_bytes" not in fix.patch.get("context", {}) for fix in refused(asked(64)).fixes)
    fixes = fixed(asked(5), refused(asked(5)))
    assert fixes
    for fix in fixes:
        assert 4 * GIB < fix.patch["context"]["prompt_cache_bytes"] < 5 * GIB


def test_devices_that_the_profile_leaves_idle_are_offered(sparse: SparseFolder) -> None:
    asked = question(
        sparse,
        "qwen3_32b",
        cards(16, 16, 16),
        placement={"devices": ["CUDA0"], "split_mode": "none"},
        context={"size": 16_384},
    )
    fixes = fixed(asked, refused(asked))
    wider = [fix for fix in fixes if fix.patch.get("placement", {}).get("devices") == ["CUDA0", "CUDA1", "CUDA2"]]
    assert len(wider) == 1
    assert len(asked.with_fix(wider[0]).planned.layers) == 3


def test_what_fits_only_together_is_offered_together(sparse: SparseFolder) -> None:
    """Neither a shorter context nor a packed cache nor a split is enough alone."""
    asked = question(
        sparse,
        "dense_llama_70b",
        cards(24, 24),
        "eagle3_llama_70b",
        speculation={"method": "eagle3", "draft": {"device": "CUDA1"}},
        placement={"tensor_split": [1, 1]},
        context={"size": 32_768},
    )
    shorter, divided = fixed(asked, refused(asked))[:2]
    for fix in (shorter, divided):
        assert fix.patch["context"]["k_type"] == fix.patch["speculation"]["draft"]["k_type"] == "q8_0"
        assert "method" not in fix.patch["speculation"]
    assert set(divided.patch["placement"]) == {"split_mode", "tensor_split"}
    # A better split holds a longer context.
    assert divided.patch["context"]["size"] > shorter.patch["context"]["size"]


def test_what_cannot_be_helped_has_no_fix(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_32b", cards(0.5), context={"size": 8192})
    assert refused(asked).fixes == []


@st.composite
def launches(draw: st.DrawFn) -> dict[str, Any]:
    target, draft, method = draw(
        st.sampled_from(
            [
                ("qwen3moe_30b", "dflash_qwen3moe_30b_head", "dflash"),
                ("qwen3_8b", "dflash_qwen3_8b", "dflash"),
                ("glm4moe_air", None, "mtp"),
                ("qwen35moe_35b", None, "mtp"),
                ("gemma3_27b", None, "none"),
                ("qwen3moe_235b", None, "none"),
            ]
        )
    )
    sizes = draw(st.lists(st.sampled_from([4, 8, 12, 16, 24, 48]), min_size=1, max_size=3))
    shares = [draw(st.integers(1, 4)) for _ in sizes]
    return {
        "target": target,
        "draft": draft,
        "sizes": sizes,
        "host_gib": draw(st.sampled_from([8, 32, 256])),
        "placement": {
            "tensor_split": shares if len(shares) > 1 else None,
            "cpu_moe_layers": draw(st.sampled_from([0, 0, 10])) if "moe" in target else 0,
        },
        "speculation": {"method": method, "draft_tokens_max": draw(st.sampled_from([3, 8]))},
        "context": {
            "size": draw(st.sampled_from([4096, 32_768, 131_072])),
            "slots": draw(st.sampled_from([1, 2])),
            "k_type": draw(st.sampled_from(["f16", "q8_0"])),
        },
    }


@explored
@given(launch=launches())
def test_every_fix_fits_once_applied(sparse: SparseFolder, launch: dict[str, Any]) -> None:
    launch = dict(launch)
    sizes, host_gib = launch.pop("sizes"), launch.pop("host_gib")
    target, draft = launch.pop("target"), launch.pop("draft")
    if draft is not None:
        launch["speculation"] = {**launch["speculation"], "draft": {"device": f"CUDA{len(sizes) - 1}"}}
    asked = question(sparse, target, cards(*sizes, host_gib=host_gib), draft, **launch)
    before = asked.errors()
    asked.plans = 0
    verdicts = asked.judged()
    assert asked.plans < _PLANS_MAX
    for finding in verdicts:
        for fix in finding.fixes:
            if not fix.patch:
                continue
            after = asked.with_fix(fix)
            if finding.rule == "host-memory":
                assert "host-memory" not in after.errors()
                assert after.errors() <= before
            else:
                assert after.planned.fits, (finding.rule, fix)
                assert after.errors() <= before - {"device-memory", "host-memory"}
