"""Adapters in a profile's extra arguments: found in the model folders, read, planned, and said as absolute paths."""

import shutil
from pathlib import Path

import pytest
from fixtures.adapters import write_lora, write_vector
from fixtures.cases import profile
from fixtures.checks import launch_check
from fixtures.tiny_models import TinyModels

from app.launch.check import LaunchCheck
from app.launch.report import Verdict

QUERY = "blk.0.attn_q.weight"


@pytest.fixture
def folder(tiny: TinyModels, tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(tiny.dense_target, models / "dense.gguf")
    write_lora(models / "a.gguf", tiny.dense_target, [QUERY], rank=1024)
    write_lora(models / "b.gguf", tiny.dense_target, [QUERY])
    write_vector(models / "v.gguf", 32, [1, 2])
    write_lora(tmp_path / "outside.gguf", tiny.dense_target, [QUERY])
    return models


@pytest.fixture
def check(folder: Path) -> LaunchCheck:
    return launch_check(folder)


async def test_files_are_resolved_and_their_bytes_planned(check: LaunchCheck, folder: Path) -> None:
    bare = await check.check(profile(context={"size": 512}), 1)
    words = ["--lora", "a.gguf,b.gguf", "--lora-scaled", "b.gguf:0.5", "--control-vector", "v.gguf"]
    checked = await check.check(profile(context={"size": 512}, extra_args=words), 1)
    assert checked.launch is not None
    assert checked.launch.flags[-6:] == (
        "--lora", f"{folder}/a.gguf,{folder}/b.gguf", "--lora-scaled", f"{folder}/b.gguf:0.5",
        "--control-vector", f"{folder}/v.gguf",
    )  # fmt: skip
    more = checked.report.host["terms"]["overhead"] - bare.report.host["terms"]["overhead"]
    assert more > (folder / "a.gguf").stat().st_size
    assert any("adapters" in unknown for unknown in checked.report.partial)
    assert not any("adapters" in unknown for unknown in bare.report.partial)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--lora", "absent.gguf"], "adapter-unreadable"),
        (["--lora", "../outside.gguf"], "adapter-unreadable"),
        (["--lora", "a.gguf,../outside.gguf"], "adapter-unreadable"),
        (["--lora", "/etc/passwd"], "adapter-unreadable"),
        (["--lora-scaled", "a.gguf"], "adapter-unreadable"),
        (["--lora", "dense.gguf"], "adapter-kind"),
        (["--lora", "v.gguf"], "adapter-kind"),
        (["--control-vector", "a.gguf"], "adapter-kind"),
        (["--control-vector-layer-range", "1", "2"], "flag-reserved"),
    ],
)
async def test_what_cannot_be_used_is_refused(words: list[str], rule: str, check: LaunchCheck) -> None:
    checked = await check.check(profile(context={"size": 512}, extra_args=words), 1, force=True)
    assert checked.launch is None
    assert checked.report.verdict is Verdict.REFUSED
    assert rule in [finding.rule for finding in checked.report.findings]


async def test_an_adapter_is_no_target(check: LaunchCheck) -> None:
    checked = await check.check(profile(target={"path": "a.gguf"}), 1, force=True)
    assert "target-is-a-drafter" in [finding.rule for finding in checked.report.findings]
    assert checked.launch is None
