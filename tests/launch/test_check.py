"""The check as a whole: real files, the executable fake as engine (it answers `--help` as build 11434 does)."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import HOST, devices, profile
from fixtures.checks import FAKE_ENGINE, launch_check
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.devices import Device, Host, Machine
from app.launch.check import LaunchCheck
from app.launch.report import PlacementReport, Verdict, verdict_of


@pytest.fixture
def check(tiny: TinyModels) -> LaunchCheck:
    return launch_check(tiny.dense_target.parent)


def errors(report: PlacementReport) -> list[str]:
    return [finding.rule for finding in report.findings if finding.severity is Severity.ERROR]


async def test_a_sound_profile_gives_a_launch_and_its_report(check: LaunchCheck, tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": "draft", "draft": {"path": "draft.gguf"}}, context={"size": 1024})
    checked = await check.check(wanted, 3)
    assert checked.launch is not None
    assert (checked.launch.revision, checked.launch.profile) == (3, wanted)
    report = checked.report
    assert report.verdict is not Verdict.REFUSED
    assert report.partial == []
    assert report.host["required_bytes"] == sum(report.host["terms"].values())
    assert report.host["terms"]["draft_weights"] > 0
    assert [span["device"] for span in report.layers] == ["host"]
    assert report.resolved["context_per_slot"] == 1024
    assert report.argv[0] == str(FAKE_ENGINE)
    assert list(report.argv[1:-2]) == list(checked.launch.flags)
    assert report.argv[report.argv.index("--model") + 1] == str(tiny.dense_target)
    assert report.argv[report.argv.index("--spec-draft-model") + 1] == str(tiny.draft)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"target": {"path": "absent.gguf"}}, "target-unreadable"),
        ({"target": {"path": "dspark.gguf"}}, "target-is-a-drafter"),
        ({"target": {"path": "../outside.gguf"}}, "target-unreadable"),
        ({"speculation": {"method": "dflash", "draft": {"path": "absent.gguf"}}}, "draft-unreadable"),
        ({"speculation": {"method": "dflash"}}, "draft-missing"),
        ({"speculation": {"draft": {"path": "draft.gguf"}}}, "draft-unused"),
        ({"speculation": {"method": "eagle3", "draft": {"path": "dflash.gguf"}}}, "draft-kind"),
        ({"speculation": {"method": "mtp"}}, "mtp-absent"),
        (
            {"speculation": {"method": "draft", "draft": {"path": "draft.gguf"}, "draft_tokens_max": 0}},
            "draft-tokens-zero",
        ),
        ({"context": {"batch_size": 32}, "speculation": {"method": "ngram-mod"}}, "batch-too-small"),
        ({"extra_args": ["--no-such-flag"]}, "flag-unknown"),
        ({"extra_args": ["--port", "80"]}, "flag-reserved"),
        ({"extra_args": ["--chat-template-file", "/etc/passwd"]}, "flag-reserved"),
        ({"env": {"LD_PRELOAD": "/tmp/x.so"}}, "env-reserved"),
        ({"placement": {"devices": ["CUDA0"]}}, "device-unknown"),
        ({"projector": "absent.gguf"}, "projector-unreadable"),
    ],
)
async def test_each_error_refuses_the_launch_also_with_force(
    check: LaunchCheck, changes: dict[str, Any], rule: str
) -> None:
    checked = await check.check(profile(**changes), 1, force=True)
    assert checked.launch is None
    assert checked.report.verdict is Verdict.REFUSED
    assert errors(checked.report) == [rule]
    (found,) = (finding for finding in checked.report.findings if finding.rule == rule)
    assert found.message
    assert found.expected
    assert found.evidence


async def test_a_name_that_another_profile_has(tiny: TinyModels) -> None:
    check = launch_check(tiny.dense_target.parent, claims=lambda _: {"p": ["q"]})
    assert errors((await check.check(profile(), 1)).report) == ["alias-taken"]


async def test_extra_arguments_come_last(check: LaunchCheck) -> None:
    report = (await check.check(profile(extra_args=["--temp", "0.2"]), 1)).report
    assert list(report.argv[-6:-2]) == ["--metrics", "--slots", "--temp", "0.2"]


async def test_any_part_of_a_split_set_leads_to_its_first(check: LaunchCheck, tiny: TinyModels) -> None:
    checked = await check.check(profile(target={"path": tiny.dense_target_parts[2].name}), 1)
    assert str(tiny.dense_target_parts[0]) in checked.report.argv


async def test_files_of_extra_arguments_are_resolved_in_the_model_folders(tiny: TinyModels, tmp_path: Path) -> None:
    shutil.copy(tiny.dense_target, tmp_path)
    (tmp_path / "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
    check = launch_check(tmp_path)
    checked = await check.check(profile(extra_args=["--chat-template-file", "chat.jinja"]), 1)
    assert list(checked.report.argv[-4:-2]) == ["--chat-template-file", str(tmp_path / "chat.jinja")]


async def test_another_machine_can_be_asked_about(check: LaunchCheck) -> None:
    wanted = profile(placement={"devices": ["CUDA0", "CUDA1"], "tensor_split": [1, 1]})
    machine = Machine((Device("CUDA0"), Device("CUDA1")), Host(64 << 30, 60 << 30, 8))
    assert errors((await check.check(wanted, 1, machine=machine)).report) == []
    assert errors((await check.check(wanted, 1)).report) == ["device-unknown"]


async def test_another_machine_is_not_bound_to_the_engine_here(tiny: TinyModels) -> None:
    """A laptop with only the embedded engine plans for a server with cards."""
    check = launch_check(tiny.dense_target.parent, engine="embedded")
    machine = Machine(devices("CUDA0", "CUDA1"), HOST)
    wanted = profile(placement={"devices": ["CUDA0", "CUDA1"], "tensor_split": [3, 2]})
    report = (await check.check(wanted, 1, machine=machine)).report
    assert errors(report) == []
    assert [device["name"] for device in report.devices] == ["CUDA0", "CUDA1"]


async def test_a_target_that_drafts_for_itself_is_warned_of(check: LaunchCheck) -> None:
    wanted = profile(speculation={"method": "draft", "draft": {"path": "dense.gguf"}})
    assert "draft-is-target" in [finding.rule for finding in (await check.check(wanted, 1)).report.findings]
    other = profile(speculation={"method": "draft", "draft": {"path": "draft.gguf"}})
    assert "draft-is-target" not in [finding.rule for finding in (await check.check(other, 1)).report.findings]


async def test_the_embedded_engine_refuses_a_choice_of_devices(tiny: TinyModels) -> None:
    check = launch_check(tiny.dense_target.parent, engine="embedded", rpc=("127.0.0.1:1",))

    async def unknown(**placement: Any) -> list[str]:
        report = (await check.check(profile(placement=placement), 1)).report
        return sorted(finding.observed for finding in report.findings if finding.rule == "flag-unknown")

    assert await unknown() == ["--rpc"]
    # What uses no RPC device does not keep its server busy.
    assert await unknown(devices=["none"]) == ["--device"]
    assert await unknown(devices=["RPC0"]) == ["--device", "--rpc"]


def test_the_verdict_is_that_of_the_worst_finding() -> None:
    assert verdict_of([]) is Verdict.FITS


async def test_what_an_earlier_launch_took_corrects_the_estimates(tiny: TinyModels) -> None:
    measured = {"host": {"compute": 123_456_789, "weights": 1}}
    before = (await launch_check(tiny.dense_target.parent).check(profile(), 1)).report.host["terms"]
    after = (await launch_check(tiny.dense_target.parent, measured=measured).check(profile(), 1)).report.host["terms"]
    assert after == {**before, "compute": 123_456_789}
