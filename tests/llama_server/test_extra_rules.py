"""Rules that read the extra arguments of a profile."""

from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.model_files import write
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import ModelFile, read_model
from app.llama_server import extra_rules
from app.placement.case import LaunchCase

WARNING, ERROR, INFO = Severity.WARNING, Severity.ERROR, Severity.INFO
YARN = ["--rope-scaling", "yarn"]


def header(folder: Path, **keys: Any) -> ModelFile:
    said = {"block_count": 1, "context_length": 4096, **{key.replace("__", "."): value for key, value in keys.items()}}
    return read_model(write(folder / "m.gguf", "llama", said))


@pytest.mark.parametrize(
    ("context", "extra", "over"),
    [
        ({"size": 4096}, [], False),
        ({"size": 4097}, [], True),
        ({"size": 8192, "slots": 2}, [], False),
        ({"size": 8194, "slots": 2}, [], True),
        # One pool may hold what several slots use together.
        ({"size": 8192, "slots": 2, "unified_kv": True}, [], False),
        ({"size": 8194, "slots": 2, "unified_kv": True}, [], True),
        ({"size": 8192}, [*YARN, "--rope-scale", "2"], False),
        ({"size": 8193}, [*YARN, "--rope-scale", "2"], True),
        ({"size": 8192}, [*YARN, "--rope-freq-scale", "0.5"], False),
        ({"size": 8192}, [*YARN, "--rope-scale", "4", "--yarn-orig-ctx", "2048"], False),
        ({"size": 8192}, YARN, True),
        # Slots stay capped at the trained length, whatever is scaled (build 11434).
        ({"size": 8192}, ["--rope-scaling", "linear", "--rope-scale", "2"], True),
        ({"size": 8192}, ["--rope-scale", "2"], True),
        ({"size": 8192}, ["--rope-freq-base", "1000000"], True),
        ({"size": 8192}, [*YARN, "--rope-scale", "many"], True),
        ({}, [], False),
    ],
)
def test_a_context_beyond_the_trained_length(
    context: dict[str, Any], extra: list[str], over: bool, tiny: TinyModels
) -> None:
    judged = case(profile(context=context, extra_args=extra), target=read_model(tiny.dense_target))
    if over:
        found_by(extra_rules.context_over_trained, judged, "context-over-trained", WARNING)
    else:
        assert extra_rules.context_over_trained(judged) is None


def test_the_file_may_bring_yarn_itself(tmp_path: Path) -> None:
    judged = case(
        profile(context={"size": 8192}, extra_args=["--rope-scale", "2"]),
        target=header(tmp_path, rope__scaling__type="yarn"),
    )
    assert extra_rules.context_over_trained(judged) is None


def test_without_a_trained_length_nothing_is_known_to_be_over(tmp_path: Path) -> None:
    target = header(tmp_path, context_length=0)
    assert extra_rules.context_over_trained(case(profile(context={"size": 1 << 20}), target=target)) is None


def shifting(target: ModelFile, k_type: str, extra: list[str], **changes: Any) -> LaunchCase:
    return case(profile(context={"k_type": k_type}, extra_args=extra, **changes), target=target)


@pytest.mark.parametrize(
    ("k_type", "key_length", "dies"),
    [
        ("q8_0", 32, True),
        ("q8_0", 96, True),
        ("q4_0", 80, True),
        ("q8_0", 64, False),
        ("q8_0", 128, False),
        ("f16", 32, False),
        ("f32", 32, False),
        ("bf16", 32, True),
        ("bf16", 128, True),
    ],
)
def test_a_context_shift_must_be_able_to_rotate_k(k_type: str, key_length: int, dies: bool, tmp_path: Path) -> None:
    target = header(tmp_path, attention__key_length=key_length)
    judged = shifting(target, k_type, ["--temp", "0.5", "--context-shift"])
    if dies:
        found = found_by(extra_rules.context_shift_k_type, judged, "context-shift-k-type", ERROR)
        assert patched(judged, found, 1).profile.extra_args == ("--temp", "0.5")
    else:
        assert extra_rules.context_shift_k_type(judged) is None


def test_the_key_length_may_follow_from_the_width(tmp_path: Path) -> None:
    for heads, dies in ((3, True), (2, False)):
        target = header(tmp_path, embedding_length=256, attention__head_count=heads)
        judged = shifting(target, "q8_0", ["--context-shift"])
        assert (extra_rules.context_shift_k_type(judged) is not None) is dies


@pytest.mark.parametrize(
    ("extra", "dies"),
    [
        ([], False),
        (["--no-context-shift"], False),
        (["--context-shift", "--no-context-shift"], False),
        (["--no-context-shift", "--context_shift"], True),
    ],
)
def test_the_last_word_on_shifting_counts(extra: list[str], dies: bool, tiny: TinyModels) -> None:
    judged = shifting(read_model(tiny.dense_target), "q8_0", extra)
    assert (extra_rules.context_shift_k_type(judged) is not None) is dies


def test_where_the_engine_does_not_shift_nothing_dies(tiny: TinyModels) -> None:
    with_sections = shifting(read_model(tiny.mtp_target), "q8_0", ["--context-shift"])
    assert extra_rules.context_shift_k_type(with_sections) is None
    seeing = shifting(read_model(tiny.dense_target), "q8_0", ["--context-shift"], projector="p.gguf")
    assert extra_rules.context_shift_k_type(seeing) is None


@pytest.mark.parametrize("flag", ["-devd", "--device-draft", "--spec-draft-device"])
def test_a_draft_over_several_devices_follows_the_targets_split(flag: str, tiny: TinyModels) -> None:
    def drafting(devices: str) -> LaunchCase:
        speculation = {"method": "draft", "draft": {"path": "d.gguf"}}
        wanted = profile(speculation=speculation, extra_args=["--temp", "0", flag, devices])
        return case(wanted, target=read_model(tiny.dense_target), device_names=["CUDA0", "CUDA1"])

    judged = drafting("CUDA0,CUDA1")
    found = found_by(extra_rules.draft_split_inherited, judged, "draft-split-inherited", WARNING)
    after = patched(judged, found).profile
    assert after.speculation.draft is not None
    assert (after.speculation.draft.device, after.extra_args) == ("CUDA1", ("--temp", "0"))
    assert extra_rules.draft_split_inherited(drafting("CUDA1")) is None


def test_the_targets_own_heads_take_no_draft_device(tiny: TinyModels) -> None:
    def heads(extra: list[str], **speculation: Any) -> LaunchCase:
        wanted = profile(speculation={"method": "mtp", **speculation}, extra_args=extra)
        return case(wanted, target=read_model(tiny.mtp_target), device_names=["CUDA0"])

    named = ["--spec-draft-device", "CUDA0"]
    found_by(extra_rules.mtp_draft_device_ignored, heads(named), "mtp-draft-device-ignored", INFO)
    assert extra_rules.mtp_draft_device_ignored(heads([])) is None
    assert extra_rules.mtp_draft_device_ignored(heads(named, draft={"path": "d.gguf"})) is None
    assert extra_rules.mtp_draft_device_ignored(heads(named, method="draft", draft={"path": "d.gguf"})) is None
