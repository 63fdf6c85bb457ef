"""Rules that weigh experts and drafts: both sides of each."""

from typing import Any

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import MIB, Question, cards, question, with_free

from app.findings import Severity

_MIXED: dict[str, Any] = {"placement": {"cpu_moe_layers": 24, "tensor_split": [1, 1]}, "context": {"size": 32_768}}


def drafted(device: str, **draft: Any) -> dict[str, Any]:
    return {"method": "dflash", "draft": {"device": device, **draft}, "draft_tokens_max": 5}


def test_experts_that_leave_the_first_device_only_are_an_imbalance(sparse: SparseFolder) -> None:
    """The mission's case: the split was made for the whole model, and the last device is over."""
    asked = question(sparse, "glm4moe_air", cards(24, 24), **_MIXED)
    found = asked.found("expert-offload-imbalance")
    assert found is not None
    assert found.severity is Severity.WARNING
    assert asked.found("device-memory") is not None
    after = asked.with_fix(found.fixes[0])
    assert after.judged() == []
    first, last = asked.planned.devices
    freed = last.required_bytes - after.planned.devices[1].required_bytes
    assert found.fixes[0].effect_bytes == freed > 0
    assert first.headroom_bytes > last.headroom_bytes


@pytest.mark.parametrize(
    "placement",
    [
        {"cpu_moe_layers": 24, "tensor_split": [36, 12]},
        {"cpu_moe_layers": "all", "tensor_split": [1, 1]},
        {"cpu_moe_layers": 24, "devices": ["CUDA1"]},
        {"cpu_moe_layers": 0, "tensor_split": [1, 1]},
    ],
)
def test_no_imbalance_where_a_split_would_not_help(sparse: SparseFolder, placement: dict[str, Any]) -> None:
    asked = question(sparse, "glm4moe_air", cards(24, 24), placement=placement, context={"size": 8192})
    assert asked.found("expert-offload-imbalance") is None


def test_no_imbalance_where_the_last_device_has_room(sparse: SparseFolder) -> None:
    assert question(sparse, "glm4moe_air", cards(24, 80), **_MIXED).found("expert-offload-imbalance") is None


def test_the_last_device_is_full_with_a_tenth_left(sparse: SparseFolder) -> None:
    asked = question(sparse, "glm4moe_air", cards(40, 40), **_MIXED)
    budget = asked.planned.devices[1]
    tenth = -(-budget.required_bytes // 9)
    for left, is_found in ((tenth, False), (tenth - 1, True)):
        free = budget.required_bytes + budget.margin_bytes + left
        at = asked.on(with_free(asked.case.machine, "CUDA1", free))
        assert (at.found("expert-offload-imbalance") is not None) is is_found, left


def hybrid(sparse: SparseFolder, size: float, **draft: Any) -> Question:
    return question(
        sparse,
        "qwen3moe_30b",
        cards(size),
        "dflash_qwen3moe_30b_head",
        speculation=drafted("none", **draft),
        placement={"cpu_moe_layers": 20},
        context={"size": 8192},
    )


@pytest.mark.parametrize("size", [12.8, 16])
def test_a_draft_on_the_host_beside_experts_on_a_device(sparse: SparseFolder, size: float) -> None:
    """On the smaller card the draft has no room as things are: experts give way."""
    asked = hybrid(sparse, size)
    found = asked.found("expert-before-draft")
    assert found is not None
    assert found.severity is Severity.WARNING
    (fix,) = found.fixes
    moved = fix.patch.get("placement", {}).get("cpu_moe_layers", 20)
    assert (moved > 20) is (size < 16)
    after = asked.with_fix(fix)
    assert after.errors() == set()
    assert after.found("expert-before-draft") is None
    assert after.planned.devices[0].terms["draft_weights"] > 0


def test_a_draft_cut_in_two_gave_way_too(sparse: SparseFolder) -> None:
    asked = question(
        sparse,
        "qwen3moe_30b",
        cards(24),
        "dflash_qwen3moe_30b_head",
        speculation=drafted("CUDA0", gpu_layers=3),
        context={"size": 8192},
    )
    found = asked.found("expert-before-draft")
    assert found is not None
    assert "in part" in found.message


@pytest.mark.parametrize("placement", [{"cpu_moe_layers": "all"}, {"devices": ["none"], "gpu_layers": 0}])
def test_where_no_expert_is_on_a_device_none_can_give_way(sparse: SparseFolder, placement: dict[str, Any]) -> None:
    asked = question(
        sparse,
        "qwen3moe_30b",
        cards(24),
        "dflash_qwen3moe_30b_head",
        speculation=drafted("none"),
        placement=placement,
        context={"size": 8192},
    )
    assert asked.found("expert-before-draft") is None


def test_a_whole_draft_on_a_device_gave_nothing(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3moe_30b", cards(24), "dflash_qwen3moe_30b_head", speculation=drafted("CUDA0"))
    assert asked.found("expert-before-draft") is None


def precise(sparse: SparseFolder, size: float, draft: str = "dflash_qwen3_8b_head") -> Question:
    return question(sparse, "qwen3_8b", cards(size), draft, speculation=drafted("CUDA0"), context={"size": 8192})


def test_a_16_bit_draft_on_a_device_that_is_nearly_full(sparse: SparseFolder) -> None:
    """Full means: a tenth of what it may use is left, to the byte."""
    asked = precise(sparse, 24)
    needed = asked.planned.devices[0].required_bytes
    margin = asked.planned.devices[0].margin_bytes
    tenth = -(-needed // 9)
    for left, is_found in ((tenth, False), (tenth - 1, True)):
        at = asked.on(with_free(asked.case.machine, "CUDA0", needed + margin + left))
        found = at.found("draft-precision")
        assert (found is not None) is is_found, left
    assert found is not None
    assert found.severity is Severity.WARNING
    saved = found.fixes[0].effect_bytes
    weights = asked.planned.devices[0].terms["draft_weights"]
    # 34 bytes for 32 values instead of 64; the norms are small.
    assert saved == pytest.approx(weights * 30 / 64, rel=0.01)
    assert found.fixes[0].patch == {}


def test_a_16_bit_draft_beside_experts_on_the_host(sparse: SparseFolder) -> None:
    def asked(moved: int) -> Question:
        return question(
            sparse,
            "qwen35moe_122b",
            cards(80),
            "dflash_qwen35moe_122b",
            speculation=drafted("CUDA0"),
            placement={"cpu_moe_layers": moved},
        )

    assert asked(20).found("draft-precision") is not None
    assert (
        question(sparse, "qwen35moe_122b", cards(141), "dflash_qwen35moe_122b", speculation=drafted("CUDA0")).found(
            "draft-precision"
        )
        is None
    )


@pytest.mark.parametrize("size", [10, 24])
def test_a_q8_draft_is_never_too_precise(sparse: SparseFolder, size: float) -> None:
    asked = question(
        sparse,
        "qwen3_8b",
        cards(size),
        "dspark_qwen3_8b_head",
        speculation={"method": "dspark", "draft": {"device": "CUDA0"}},
        context={"size": 8192},
    )
    assert asked.found("draft-precision") is None


def test_a_draft_that_only_the_host_has_room_for(sparse: SparseFolder) -> None:
    asked = precise(sparse, 8)
    found = asked.found("draft-on-host")
    assert found is not None
    assert (found.severity, found.overridable) == (Severity.ERROR, True)
    budget = asked.planned.devices[0]
    draft_bytes = sum(n_bytes for name, n_bytes in budget.terms.items() if name.startswith("draft_"))
    assert f"{draft_bytes // MIB:,} MiB" in found.message
    assert found.fixes
    for fix in found.fixes:
        after = asked.with_fix(fix)
        assert after.errors() == set()
        assert after.case.profile.speculation == asked.case.profile.speculation


def test_not_where_the_draft_fits_or_the_target_does_not(sparse: SparseFolder) -> None:
    assert precise(sparse, 24).found("draft-on-host") is None
    assert precise(sparse, 5).found("draft-on-host") is None


def test_not_where_another_device_has_room_for_the_draft(sparse: SparseFolder) -> None:
    """Of a draft with a head of its own; one that borrows the target's may not go there."""
    for draft, is_found in (("dflash_qwen3_8b_head", False), ("dflash_qwen3_8b", True)):
        asked = question(
            sparse,
            "qwen3_8b",
            cards(7, 24),
            draft,
            speculation=drafted("CUDA0"),
            placement={"devices": ["CUDA0"], "split_mode": "none"},
            context={"size": 8192},
        )
        assert asked.found("device-memory") is not None
        assert (asked.found("draft-on-host") is not None) is is_found, draft
