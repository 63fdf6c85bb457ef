"""Rules on LoRA adapters and control vectors: each on both sides of its boundary, on real files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.adapters import write_lora, write_vector
from fixtures.cases import case, profile
from fixtures.tiny_models import TinyModels

from app.findings import Finding, Severity
from app.inventory.models import ModelKind, read_model
from app.llama_server.adapter_rules import adapter_hint, adapter_kind, adapter_mismatch, adapter_tensor_mode
from app.llama_server.extra_args import FileEntry, file_entries, joined_entries
from app.placement.case import Adapter, LaunchCase
from app.profiles.profile import document_of, merge_patch, parse_profile

QUERIES = ("blk.0.attn_q.weight", "blk.1.attn_q.weight")
LORA, VECTOR = ("--lora", ModelKind.LORA), ("--control-vector", ModelKind.CONTROL_VECTOR)
WIDTH = 32


def with_adapter(target: Path, file: Path, flag: tuple[str, ModelKind] = LORA, **changes: Any) -> LaunchCase:
    wanted = profile(extra_args=["--temp", "1", flag[0], str(file)], **changes)
    judged = case(wanted, target=read_model(target), device_names=["CUDA0", "CUDA1"])
    return replace(judged, adapters=(Adapter(*flag, read_model(file)),))


def refused(rule: Callable[[LaunchCase], Finding | None], judged: LaunchCase, name: str) -> Finding:
    found = rule(judged)
    assert found is not None
    assert (found.rule, found.severity, found.overridable) == (name, Severity.ERROR, False)
    left = parse_profile(merge_patch(document_of(judged.profile), found.fixes[-1].patch))
    assert left.extra_args == ("--temp", "1")
    return found


def test_an_adapter_that_goes_with_its_target_passes(tiny: TinyModels, tmp_path: Path) -> None:
    names = (*QUERIES, "output.weight", "token_embd.weight", "blk.0.ffn_down.weight")
    judged = with_adapter(tiny.dense_target, write_lora(tmp_path / "a.gguf", tiny.dense_target, names))
    for rule in (adapter_kind, adapter_mismatch, adapter_hint, adapter_tensor_mode):
        assert rule(judged) is None
    experts = ("blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight")
    judged = with_adapter(tiny.moe_target, write_lora(tmp_path / "e.gguf", tiny.moe_target, experts))
    assert adapter_mismatch(judged) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"architecture": "qwen3"}, "architecture qwen3"),
        ({"names": ("blk.99.attn_q.weight",)}, "does not have"),
        ({"names": ()}, "no tensors"),
        ({"wider": 8}, "other lengths"),
        ({"without_b": True}, "one is missing"),
    ],
)
def test_an_adapter_of_another_model(changes: dict[str, Any], why: str, tiny: TinyModels, tmp_path: Path) -> None:
    file = write_lora(tmp_path / "a.gguf", tiny.dense_target, **{"names": QUERIES, **changes})
    judged = with_adapter(tiny.dense_target, file)
    assert why in refused(adapter_mismatch, judged, "adapter-mismatch").message
    assert adapter_kind(judged) is None
    assert adapter_mismatch(replace(judged, target=None)) is None


def test_an_adapter_for_embeddings_that_are_the_head_too(tiny: TinyModels, tmp_path: Path) -> None:
    file = write_lora(tmp_path / "a.gguf", tiny.dense_target, ("token_embd.weight",))
    judged = with_adapter(tiny.dense_target, file)
    assert adapter_mismatch(judged) is None
    assert judged.target is not None
    tied = replace(judged, target=replace(judged.target, has_own_head=False))
    assert "head too" in refused(adapter_mismatch, tied, "adapter-mismatch").message


@pytest.mark.parametrize(("method", "passes"), [("mtp", True), ("none", False)])
def test_mtp_layers_are_there_for_mtp_alone(method: str, passes: bool, tiny: TinyModels, tmp_path: Path) -> None:
    target = read_model(tiny.mtp_target)
    name = f"blk.{target.block_count - 1}.nextn.eh_proj.weight"
    file = write_lora(tmp_path / "a.gguf", tiny.mtp_target, (name,))
    judged = with_adapter(tiny.mtp_target, file, speculation={"method": method})
    assert (adapter_mismatch(judged) is None) is passes


@pytest.mark.parametrize("flag", [LORA, VECTOR], ids=["lora", "control-vector"])
def test_a_file_that_is_no_adapter(flag: tuple[str, ModelKind], tiny: TinyModels, tmp_path: Path) -> None:
    for file in (tiny.draft, write_lora(tmp_path / "a.gguf", tiny.dense_target, QUERIES, kind="ia3")):
        judged = with_adapter(tiny.dense_target, file, flag)
        refused(adapter_kind, judged, "adapter-kind")
        assert adapter_mismatch(judged) is None
    other = (
        write_vector(tmp_path / "v.gguf", WIDTH, [1])
        if flag is LORA
        else write_lora(tmp_path / "l.gguf", tiny.dense_target, QUERIES)
    )
    refused(adapter_kind, with_adapter(tiny.dense_target, other, flag), "adapter-kind")


@pytest.mark.parametrize(
    ("width", "layers", "why"),
    [(WIDTH, [1, 2, 99], None), (48, [1], "48 values"), (WIDTH, [0], "no direction"), (WIDTH, [], "no directions")],
)
def test_a_control_vector_has_directions_as_wide_as_the_target(
    width: int, layers: Sequence[int], why: str | None, tiny: TinyModels, tmp_path: Path
) -> None:
    judged = with_adapter(tiny.dense_target, write_vector(tmp_path / "v.gguf", width, layers), VECTOR)
    assert adapter_kind(judged) is None
    if why is None:
        assert adapter_mismatch(judged) is None
    else:
        assert why in refused(adapter_mismatch, judged, "adapter-mismatch").message


@pytest.mark.parametrize(("hint", "spoken"), [("mistral", True), ("llama", False), (None, False)])
def test_a_hint_is_only_a_hint(hint: str | None, spoken: bool, tiny: TinyModels, tmp_path: Path) -> None:
    judged = with_adapter(tiny.dense_target, write_vector(tmp_path / "v.gguf", WIDTH, [1], hint=hint), VECTOR)
    found = adapter_hint(judged)
    assert (found is not None) is spoken
    assert found is None or (found.rule, found.severity) == ("adapter-hint", Severity.WARNING)


def test_split_mode_tensor_divides_no_adapter(tiny: TinyModels, tmp_path: Path) -> None:
    file = write_lora(tmp_path / "a.gguf", tiny.dense_target, QUERIES)
    judged = with_adapter(tiny.dense_target, file, placement={"split_mode": "tensor"})
    refused(adapter_tensor_mode, judged, "adapter-tensor-mode")
    on_host = with_adapter(tiny.dense_target, file, placement={"split_mode": "tensor", "devices": []})
    assert adapter_tensor_mode(on_host) is None
    vector = write_vector(tmp_path / "v.gguf", WIDTH, [1])
    assert (
        adapter_tensor_mode(with_adapter(tiny.dense_target, vector, VECTOR, placement={"split_mode": "tensor"})) is None
    )


def test_files_are_divided_as_the_engine_does() -> None:
    assert file_entries("--lora", "a.gguf,b.gguf") == [FileEntry("a.gguf"), FileEntry("b.gguf")]
    scaled = file_entries("--lora-scaled", "a.gguf:0.5,b.gguf:-1e-2")
    assert scaled == [FileEntry("a.gguf", "0.5"), FileEntry("b.gguf", "-1e-2")]
    assert joined_entries("--lora-scaled", scaled) == "a.gguf:0.5,b.gguf:-1e-2"
    assert joined_entries("--control-vector", [FileEntry("/m/a:b.gguf")]) == "/m/a:b.gguf"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--lora", ""),
        ("--lora", "a.gguf,"),
        ("--lora", '"a.gguf"'),
        ("--lora-scaled", "a.gguf"),
        ("--lora-scaled", "a.gguf:"),
        ("--lora-scaled", "a.gguf:x"),
        ("--lora-scaled", "a.gguf:nan"),
        ("--lora-scaled", "a.gguf:1_0"),
        ("--control-vector-scaled", "a:b.gguf:1"),
        ("--control-vector-scaled", ":1"),
    ],
)
def test_values_that_the_engine_would_not_load(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"expected|name"):
        file_entries(name, value)


@pytest.mark.parametrize(("name", "path"), [("--lora", "/m,n/a.gguf"), ("--lora-scaled", "/m:n/a.gguf")])
def test_folders_that_the_engine_would_divide_at(name: str, path: str) -> None:
    with pytest.raises(ValueError, match="rename"):
        joined_entries(name, [FileEntry(path, "1")])
