"""Rules on experts in host memory."""

from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.model_files import write
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import ModelFile, read_model
from app.placement.case import LaunchCase
from app.placement.rules import experts

ONE = ("CUDA0",)
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@pytest.fixture
def half_dense(tmp_path: Path) -> ModelFile:
    """Four layers, of which the first two are dense."""
    tensors = ["token_embd.weight", "output.weight"]
    tensors += [f"blk.{layer}.ffn_up{'_exps' if layer > 1 else ''}.weight" for layer in range(4)]
    keys = {"block_count": 4, "expert_count": 8, "expert_used_count": 2}
    return read_model(write(tmp_path / "moe.gguf", "glm4moe", keys, tensors))


def offloading(target: ModelFile, layers: Any = "all", *, names: tuple[str, ...] = ONE, **changes: Any) -> LaunchCase:
    draft = changes.pop("drafter", None)
    wanted = profile(placement={"cpu_moe_layers": layers, **changes.pop("placement", {})}, **changes)
    return case(wanted, target=target, draft=draft, device_names=names)


@pytest.mark.parametrize("layers", [1, "all"])
def test_expert_offload_needs_experts(layers: Any, tiny: TinyModels) -> None:
    judged = offloading(read_model(tiny.dense_target), layers)
    found = found_by(experts.target_offload_not_moe, judged, "expert-offload-not-moe", ERROR)
    assert patched(judged, found).profile.placement.cpu_moe_layers == 0
    assert experts.target_offload_not_moe(offloading(read_model(tiny.moe_target), layers)) is None
    assert experts.target_offload_not_moe(offloading(read_model(tiny.dense_target), 0)) is None


@pytest.mark.parametrize("layers", [1, "all"])
def test_expert_offload_of_a_draft_too(layers: Any, tiny: TinyModels) -> None:
    def drafting(layers: Any, drafter: Path) -> LaunchCase:
        speculation = {"method": "draft", "draft": {"path": "d.gguf", "cpu_moe_layers": layers}}
        return offloading(read_model(tiny.moe_target), 0, speculation=speculation, drafter=read_model(drafter))

    found_by(experts.draft_offload_not_moe, drafting(layers, tiny.draft), "expert-offload-not-moe", ERROR)
    assert experts.draft_offload_not_moe(drafting(layers, tiny.moe_target)) is None
    assert experts.draft_offload_not_moe(drafting(0, tiny.draft)) is None


def test_no_more_layers_than_there_are(tiny: TinyModels) -> None:
    target = read_model(tiny.moe_target)
    assert target.block_count == 8
    for layers in (0, 8, "all"):
        assert experts.expert_offload_range(offloading(target, layers)) is None
    judged = offloading(target, 9)
    found = found_by(experts.expert_offload_range, judged, "expert-offload-range", ERROR)
    assert patched(judged, found).profile.placement.cpu_moe_layers == "all"
    assert experts.expert_offload_range(offloading(read_model(tiny.dense_target), 99)) is None


def test_leading_dense_layers_are_counted_in(half_dense: ModelFile) -> None:
    found = found_by(experts.expert_offload_range, offloading(half_dense, 3), "expert-offload-range", INFO)
    assert "moves the experts of only 1." in found.message
    assert experts.expert_offload_range(offloading(half_dense, "all")) is None
    found_by(experts.expert_offload_range, offloading(half_dense, 5), "expert-offload-range", ERROR)


@pytest.mark.parametrize(
    ("layers", "placement", "expected"),
    [
        ("all", {}, True),
        (3, {}, True),
        # Both are dense.
        (2, {}, False),
        (0, {}, False),
        # Five units: three on the device leave the two dense layers behind, two an expert layer.
        (0, {"gpu_layers": 3}, False),
        (0, {"gpu_layers": 2}, True),
        (0, {"override_tensor": [r"\.ffn_.*_exps\.=CPU"]}, True),
        (0, {"override_tensor": [r"\.attn_.*=CPU"]}, False),
        # Everything is on the host.
        ("all", {"gpu_layers": 0}, False),
        ("all", {"devices": ["none"]}, False),
    ],
)
def test_when_experts_are_on_the_host(
    layers: Any, placement: dict[str, Any], expected: bool, half_dense: ModelFile
) -> None:
    assert experts.experts_on_host(offloading(half_dense, layers, placement=placement)) is expected
    assert not experts.experts_on_host(offloading(half_dense, layers, names=(), placement=placement))


def test_drafts_are_short_when_experts_verify_on_the_host(tiny: TinyModels) -> None:
    target = read_model(tiny.mtp_moe_target)

    def drafting(most: int, layers: Any = "all", method: str = "mtp", **more: Any) -> LaunchCase:
        return offloading(target, layers, speculation={"method": method, "draft_tokens_max": most}, **more)

    judged = drafting(9)
    found = found_by(experts.offloaded_draft_length, judged, "offloaded-draft-length", WARNING)
    assert [patched(judged, found, index).profile.speculation.draft_tokens_max for index in (0, 1)] == [7, 3]
    for silent in (drafting(8), drafting(9, 0), drafting(9, names=()), drafting(9, method="ngram-mod")):
        assert experts.offloaded_draft_length(silent) is None
    assert experts.offloaded_draft_length(offloading(target, speculation={"draft_tokens_max": 9})) is None


def drafting_below(
    tiny: TinyModels, least: float, method: str = "draft", layers: Any = "all", **more: Any
) -> LaunchCase:
    speculation = {"method": method, "draft": {"path": "d.gguf"}, "draft_probability_min": least}
    drafter = read_model(getattr(tiny, method))
    return offloading(read_model(tiny.moe_target), layers, speculation=speculation, drafter=drafter, **more)


@pytest.mark.parametrize("method", ["draft", "dflash", "eagle3"])
def test_unsure_drafts_are_given_up_before_experts_verify_them(method: str, tiny: TinyModels) -> None:
    judged = drafting_below(tiny, 0, method)
    found = found_by(experts.offloaded_draft_probability, judged, "offloaded-draft-probability", WARNING)
    assert patched(judged, found).profile.speculation.draft_probability_min == 0.6
    assert experts.offloaded_draft_probability(drafting_below(tiny, 0.01, method)) is None
    assert experts.offloaded_draft_probability(drafting_below(tiny, 0, method, 0)) is None
    assert experts.offloaded_draft_probability(drafting_below(tiny, 0, method, names=())) is None


def test_a_drafter_that_takes_no_threshold_is_not_offered_one(tiny: TinyModels) -> None:
    found = found_by(
        experts.offloaded_draft_probability, drafting_below(tiny, 0, "dspark"), "offloaded-draft-probability", WARNING
    )
    assert "no confidence head" in found.message
    assert not found.fixes


@pytest.mark.parametrize("method", ["mtp", "ngram-mod"])
def test_speculation_beside_host_experts_wants_to_be_measured(method: str, tiny: TinyModels) -> None:
    target = read_model(tiny.mtp_moe_target)
    judged = offloading(target, speculation={"method": method})
    assert "GET /stats" in found_by(experts.speculation_unmeasured, judged, "speculation-unmeasured", INFO).message
    assert experts.speculation_unmeasured(offloading(target)) is None
    assert experts.speculation_unmeasured(offloading(target, 0, speculation={"method": method})) is None
    assert experts.speculation_unmeasured(offloading(target, names=(), speculation={"method": method})) is None
    assert experts.offloaded_draft_probability(judged) is None
