"""Each rule on both sides of its boundary; model files are real, if tiny."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.oracle import SparseFolder
from fixtures.tiny_models import TinyModels

from app.findings import Finding, Severity
from app.inventory.models import read_model
from app.placement.rules import files, judge, parameters
from app.placement.rules.devices import buffer_unknown, device_repeated, device_unknown, devices_too_many
from app.placement.rules.names import alias_taken
from app.placement.rules.tensor_mode import tensor_mode_unproven
from app.profiles.profile import document_of, merge_patch, parse_profile


def fixed(found: Finding, wanted: Any, index: int = 0) -> Any:
    """The profile after one of the finding's fixes."""
    return parse_profile(merge_patch(document_of(wanted), found.fixes[index].patch))


def test_a_drafter_as_target_is_refused_and_swapped(tiny: TinyModels) -> None:
    swapped = profile(target={"path": "dspark.gguf"}, speculation={"method": "draft", "draft": {"path": "dense.gguf"}})
    judged = case(swapped, target=read_model(tiny.dspark), draft=read_model(tiny.dense_target))
    found = files.target_is_a_drafter(judged)
    assert found is not None
    assert (found.rule, found.severity, found.overridable) == ("target-is-a-drafter", Severity.ERROR, False)
    after = fixed(found, swapped)
    assert after.target.path == "dense.gguf"
    assert after.speculation.draft is not None
    assert (after.speculation.method, after.speculation.draft.path) == ("dspark", "dspark.gguf")
    assert files.target_is_a_drafter(case(profile(), target=read_model(tiny.dense_target))) is None


@pytest.mark.parametrize("method", ["draft", "dflash", "dspark", "eagle3"])
def test_methods_with_a_draft_model_need_one(method: str) -> None:
    found = files.draft_missing(case(profile(speculation={"method": method})))
    assert found is not None
    assert found.rule == "draft-missing"
    given = profile(speculation={"method": method, "draft": {"path": "d.gguf"}})
    assert files.draft_missing(case(given)) is None
    assert files.draft_missing(case(profile(speculation={"method": "mtp"}))) is None


@pytest.mark.parametrize("method", ["none", "ngram-mod", "ngram-simple"])
def test_a_draft_that_no_method_uses_is_refused(method: str, tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": method, "draft": {"path": "dspark.gguf"}})
    found = files.draft_unused(case(wanted, draft=read_model(tiny.dspark)))
    assert found is not None
    assert found.rule == "draft-unused"
    assert fixed(found, wanted).speculation.method == "dspark"
    assert fixed(found, wanted, 1).speculation.draft is None
    used = profile(speculation={"method": "dspark", "draft": {"path": "dspark.gguf"}})
    assert files.draft_unused(case(used, draft=read_model(tiny.dspark))) is None


KINDS = {"draft": "draft", "dspark": "dspark", "dflash": "dflash", "eagle3": "eagle3"}


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_draft_must_be_of_the_methods_kind(method: str, kind: str, tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": method, "draft": {"path": "d.gguf"}})
    found = files.draft_kind(case(wanted, draft=read_model(getattr(tiny, kind))))
    if method == kind:
        assert found is None
    else:
        assert found is not None
        assert found.rule == "draft-kind"
        assert fixed(found, wanted).speculation.method == kind


def test_mtp_needs_heads(tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": "mtp"})
    found = files.mtp_absent(case(wanted, target=read_model(tiny.dense_target)))
    assert found is not None
    assert found.rule == "mtp-absent"
    assert files.mtp_absent(case(wanted, target=read_model(tiny.mtp_target))) is None
    assert files.mtp_absent(case(wanted, target=read_model(tiny.mtp_moe_target))) is None
    from_file = profile(speculation={"method": "mtp", "draft": {"path": "heads.gguf"}})
    assert files.mtp_absent(case(from_file, target=read_model(tiny.dense_target))) is None


@pytest.mark.parametrize("method", ["mtp", "draft", "dflash", "dspark", "eagle3"])
def test_zero_draft_tokens(method: str) -> None:
    wanted = profile(speculation={"method": method, "draft_tokens_max": 0})
    found = parameters.draft_tokens_zero(case(wanted))
    assert found is not None
    assert found.rule == "draft-tokens-zero"
    assert fixed(found, wanted).speculation.draft_tokens_max == 3
    one = profile(speculation={"method": method, "draft_tokens_max": 1})
    assert parameters.draft_tokens_zero(case(one)) is None
    bounded_otherwise = profile(speculation={"method": "ngram-mod", "draft_tokens_max": 0})
    assert parameters.draft_tokens_zero(case(bounded_otherwise)) is None
    assert parameters.draft_tokens_zero(case(profile(speculation={"draft_tokens_max": 0}))) is None


@pytest.mark.parametrize(
    ("speculation", "slots", "needed"),
    [
        ({"method": "draft", "draft_tokens_max": 12}, 4, 52),
        ({"method": "draft", "draft_tokens_max": 3, "also": ["ngram-mod"]}, 2, 130),
        ({"method": "ngram-simple", "ngram": {"draft_length_max": 9}}, 3, 30),
        ({"method": "ngram-cache"}, 2, 18),
        ({"method": "none"}, 4, 4),
        ({"method": "none"}, 1, 2),
    ],
)
def test_the_batch_holds_every_slots_longest_draft(speculation: dict[str, Any], slots: int, needed: int) -> None:
    enough = profile(speculation=speculation, context={"slots": slots, "batch_size": needed})
    assert parameters.batch_too_small(case(enough)) is None
    small = profile(speculation=speculation, context={"slots": slots, "batch_size": needed - 1})
    found = parameters.batch_too_small(case(small))
    assert found is not None
    assert found.rule == "batch-too-small"
    assert fixed(found, small).context.batch_size == needed


def test_slots_divide_or_share_the_context() -> None:
    divided = profile(context={"slots": 4, "size": 8192})
    found = parameters.slots_divide_context(case(divided))
    assert found is not None
    assert (found.rule, found.severity) == ("slots-divide-context", Severity.WARNING)
    assert "2048" in found.observed
    assert fixed(found, divided).context.size == 4 * 8192
    assert parameters.slots_share_context(case(divided)) is None

    shared = profile(context={"slots": 4, "size": 8192, "unified_kv": True})
    found = parameters.slots_share_context(case(shared))
    assert found is not None
    assert (found.rule, found.severity) == ("slots-share-context", Severity.WARNING)
    assert parameters.slots_divide_context(case(shared)) is None

    alone = profile(context={"slots": 1, "size": 8192, "unified_kv": True})
    assert parameters.slots_share_context(case(alone)) is None
    assert parameters.slots_divide_context(case(alone)) is None


def test_devices_are_those_that_the_engine_lists() -> None:
    known = profile(placement={"devices": ["CUDA0", "CUDA1"]})
    assert device_unknown(case(known, device_names=["CUDA0", "CUDA1"])) is None
    found = device_unknown(case(known, device_names=["CUDA0"]))
    assert found is not None
    assert (found.rule, found.observed) == ("device-unknown", "CUDA1")
    assert fixed(found, known).placement.devices is None
    on_host = profile(placement={"devices": ["none"]})
    assert device_unknown(case(on_host)) is None


def test_a_bare_index_means_the_device_with_that_index() -> None:
    wanted = profile(
        placement={"devices": ["1", "CUDA0"]},
        speculation={"method": "draft", "draft": {"path": "d.gguf", "device": "0"}},
    )
    found = device_unknown(case(wanted, device_names=["CUDA0", "CUDA1"]))
    assert found is not None
    assert fixed(found, wanted).placement.devices == ("CUDA1", "CUDA0")
    draft = fixed(found, wanted, 1).speculation.draft
    assert draft is not None
    assert draft.device == "CUDA0"


def test_a_name_belongs_to_one_profile() -> None:
    wanted = profile(serving={"aliases": ["gpt-x", "mine"]})
    found = alias_taken(case(wanted, claims={"p": [], "gpt-x": ["other"], "mine": []}))
    assert found is not None
    assert found.rule == "alias-taken"
    assert fixed(found, wanted).serving.aliases == ("mine",)
    assert alias_taken(case(wanted, claims={"p": [], "gpt-x": [], "mine": []})) is None


def test_a_split_set_has_names_that_the_engine_loads(tiny: TinyModels, tmp_path: Path) -> None:
    assert files.target_split_name(case(profile(), target=read_model(tiny.dense_target_parts[0]))) is None
    for part in tiny.dense_target_parts:
        (tmp_path / part.name.replace("-0000", "_0000", 1)).write_bytes(part.read_bytes())
    renamed = read_model(next(iter(sorted(tmp_path.iterdir()))))
    found = files.target_split_name(case(profile(), target=renamed))
    assert found is not None
    assert found.rule == "target-unreadable"


def test_a_device_is_named_once() -> None:
    wanted = profile(placement={"devices": ["CUDA0", "CUDA0"], "tensor_split": [1, 1]})
    found = device_repeated(case(wanted, device_names=["CUDA0"]))
    assert found is not None
    assert (found.rule, found.severity) == ("device-repeated", Severity.ERROR)
    mended = fixed(found, wanted).placement
    assert (mended.devices, mended.tensor_split) == (("CUDA0",), None)
    beside_none = profile(placement={"devices": ["none", "CUDA0"]})
    found = device_repeated(case(beside_none, device_names=["CUDA0"]))
    assert found is not None
    assert fixed(found, beside_none).placement.devices == ("CUDA0",)
    for devices in (["none"], [], ["CUDA0", "CUDA1"], None):
        assert device_repeated(case(profile(placement={"devices": devices}), device_names=["CUDA0", "CUDA1"])) is None


@pytest.mark.parametrize(("method", "slots", "most", "needed"), [("dflash", 9, 15, 144), ("dspark", 16, 7, 128)])
def test_block_drafters_read_all_blocks_in_one_pass(
    method: str, slots: int, most: int, needed: int, tiny: TinyModels
) -> None:
    def judged(ubatch: int) -> Finding | None:
        wanted = profile(
            speculation={"method": method, "draft": {"path": "d.gguf"}, "draft_tokens_max": most},
            context={"slots": slots, "ubatch_size": ubatch},
        )
        return parameters.ubatch_too_small(case(wanted, draft=read_model(getattr(tiny, method))))

    assert judged(needed) is None
    found = judged(needed - 1)
    assert found is not None
    assert found.rule == "ubatch-too-small"
    assert found.fixes[0].patch["context"]["ubatch_size"] == needed


@pytest.mark.parametrize(("most", "ubatch", "fits"), [(8, 9, False), (8, 10, True), (3, 5, True), (1, 2, False)])
def test_drafts_that_are_taken_back_need_room_behind(most: int, ubatch: int, fits: bool, tiny: TinyModels) -> None:
    """The figures at which llama.cpp build 11434 aborts, or loads, for qwen35."""
    wanted = profile(
        speculation={"method": "mtp", "draft_tokens_max": most}, context={"ubatch_size": ubatch, "batch_size": 64}
    )
    found = parameters.ubatch_too_small(case(wanted, target=read_model(tiny.mtp_target)))
    assert (found is None) is fits


def test_a_projector_is_one(tiny: TinyModels) -> None:
    wanted = profile(projector="dense.gguf")
    found = files.projector_kind(replace(case(wanted), projector=read_model(tiny.dense_target)))
    assert found is not None
    assert found.rule == "projector-kind"
    assert fixed(found, wanted).projector is None
    assert files.projector_kind(case(wanted)) is None


def test_at_most_256_slots() -> None:
    assert parameters.slots_too_many(case(profile(context={"slots": 256}))) is None
    many = profile(context={"slots": 257})
    found = parameters.slots_too_many(case(many))
    assert found is not None
    assert found.rule == "slots-too-many"
    assert fixed(found, many).context.slots == 256


def test_split_mode_tensor_is_never_confirmed(tiny: TinyModels) -> None:
    wanted = profile(placement={"split_mode": "tensor", "tensor_split": [1, 1]})
    found = tensor_mode_unproven(case(wanted, target=read_model(tiny.dense_target), device_names=["CUDA0", "CUDA1"]))
    assert found is not None
    assert (found.rule, found.severity) == ("tensor-mode-unproven", Severity.WARNING)
    assert fixed(found, wanted).placement.split_mode == "layer"
    assert tensor_mode_unproven(case(profile(), target=read_model(tiny.dense_target), device_names=["CUDA0"])) is None


@pytest.mark.parametrize(
    ("entry", "is_known"),
    [
        ("exps=CPU", True), ("exps=CUDA0", True), ("exps=CUDA1", False), ("exps=NOSUCH", False),
        ("exps=RPC0[127.0.0.1:50052]", True), ("exps=CUDA_Host", True),
    ],
)  # fmt: skip
def test_overrides_send_tensors_to_buffers_of_the_launch(entry: str, is_known: bool) -> None:
    wanted = profile(placement={"devices": ["CUDA0"], "override_tensor": ["ffn=CPU", entry]})
    found = buffer_unknown(case(wanted, device_names=["CUDA0", "CUDA1"]))
    assert (found is None) is is_known
    if found is not None:
        assert (found.rule, found.overridable) == ("buffer-unknown", True)
        assert fixed(found, wanted).placement.override_tensor == ("ffn=CPU",)


def test_latent_attention_has_one_cache_type(sparse: SparseFolder, tiny: TinyModels) -> None:
    latent = sparse.model("deepseek2_lite")
    mixed = profile(context={"k_type": "q8_0", "v_type": "f16"})
    found = parameters.cache_types_differ(case(mixed, target=latent))
    assert found is not None
    assert found.rule == "cache-types-differ"
    assert fixed(found, mixed).context.v_type == "q8_0"
    assert parameters.cache_types_differ(case(profile(), target=latent)) is None
    assert parameters.cache_types_differ(case(mixed, target=read_model(tiny.dense_target))) is None


@pytest.mark.parametrize(("mode", "count", "fits"), [("layer", 15, True), ("layer", 16, False), ("none", 16, True)])
def test_at_most_15_devices(mode: str, count: int, fits: bool) -> None:
    """Measured on RPC devices: with 16 the scheduler asserts, since the CPU is one of its 16 backends."""
    names = [f"RPC{index}" for index in range(count)]
    judged = case(profile(placement={"split_mode": mode}), device_names=names)
    found = devices_too_many(judged)
    assert (found is None) is fits
    if found is not None:
        assert found.rule == "devices-too-many"
        assert fixed(found, judged.profile).placement.devices == tuple(names[:15])
        chosen = case(profile(placement={"devices": names[:3]}), device_names=names)
        assert devices_too_many(chosen) is None


def test_without_a_target_nothing_is_said_that_its_header_would_tell(tiny: TinyModels) -> None:
    """A context left open, and where the output is, follow the target's file."""
    wanted = profile(
        placement={"fit": True},
        context={"slots": 2},
        speculation={"method": "dspark", "draft": {"path": "d.gguf", "device": "none"}},
    )
    blind_case = case(wanted, draft=read_model(tiny.dspark), device_names=("CUDA0", "CUDA1"))
    depending = {"fit-needs-context", "slots-divide-context", "draft-not-with-output", "draft-on-host"}
    spoken = {found.rule for found in judge(replace(blind_case, target=read_model(tiny.dense_target)))}
    assert depending <= spoken
    blind = judge(blind_case)
    assert depending.isdisjoint({found.rule for found in blind})
    assert not any("size" in fix.patch.get("context", {}) for found in blind for fix in found.fixes)
