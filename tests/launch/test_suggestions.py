"""Suggestions from real files: what reading them shows, and what their own check says of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import HOST, profile
from fixtures.checks import FAKE_ENGINE
from fixtures.model_files import write

from app.findings import Severity
from app.inventory.devices import Machine
from app.launch.check import LaunchCheck
from app.launch.circumstances import Circumstances, OtherLaunches
from app.launch.dry_run import DryRuns
from app.launch.suggestions import CheckedSuggestions, LaunchSuggestions
from app.llama_server.engine import find_engine
from app.llama_server.probe import EngineProbe
from app.profiles.profile import LaunchProfile

TOKENS = [f"t{number}" for number in range(400)]


async def suggested(folder: Path, taken: Sequence[str] = (), **wish: Any) -> CheckedSuggestions:
    """What is suggested on a machine without devices; `taken` are profiles that have the name of this one."""

    async def machine(_: Mapping[str, str]) -> Machine:
        return Machine((), HOST)

    def claims(wanted: LaunchProfile) -> Mapping[str, Sequence[str]]:
        return dict.fromkeys(wanted.names, taken)

    circumstances = Circumstances(
        model_dirs=[folder],
        rpc=(),
        margin_bytes=0,
        claims=claims,
        machine=machine,
        others=lambda *_: OtherLaunches({}, {}),
        measured=lambda *_: {},
    )
    probe = EngineProbe(lambda: find_engine(str(FAKE_ENGINE)))
    check = LaunchCheck(probe, DryRuns(), circumstances)
    return await LaunchSuggestions(check, probe, circumstances).suggest(profile(**wish))


@pytest.mark.parametrize(("at", "is_left_out"), [(7, True), (4, False)])
async def test_a_draft_with_other_tokens_is_left_out_and_said(at: int, is_left_out: bool, tmp_path: Path) -> None:
    other = [*TOKENS[:at], "another text", *TOKENS[at + 1 :]]
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    write(tmp_path / "draft.gguf", keys={"block_count": 1}, tokens=other)
    told = await suggested(tmp_path, speculation={"method": "none", "draft": {"path": "draft.gguf"}})
    assert told.profiles
    assert [(found.rule, found.severity) for found in told.findings] == [
        ("draft-vocabulary", Severity.WARNING)
    ] * is_left_out
    methods = {each.profile.speculation.method.value for each in told.profiles}
    assert ("draft" in methods) is not is_left_out


async def test_a_target_that_drafts_for_itself(tmp_path: Path) -> None:
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    told = await suggested(tmp_path, speculation={"method": "draft", "draft": {"path": "dense.gguf"}})
    assert [each.profile.speculation.method.value for each in told.profiles] == ["none"]
    assert [(found.rule, found.severity) for found in told.findings] == [("draft-is-target", Severity.WARNING)]


async def test_what_every_check_refuses_is_why_there_is_nothing(tmp_path: Path) -> None:
    """The search does not know the extra arguments, and their check does."""
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    told = await suggested(tmp_path, extra_args=["--no-such-flag"])
    assert told.profiles == ()
    assert [(found.rule, found.severity) for found in told.findings] == [("flag-unknown", Severity.ERROR)]


async def test_a_name_that_another_profile_has(tmp_path: Path) -> None:
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    told = await suggested(tmp_path, taken=["other"])
    assert [found.rule for found in told.findings] == ["alias-taken"]
    assert not told.profiles


async def test_patterns_of_the_wish_are_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "dense.gguf", keys={"block_count": 1}, tokens=TOKENS)
    told = await suggested(tmp_path, placement={"override_tensor": [r"(.{1,9}){9}!=CPU"]})
    assert told.profiles
    assert all(each.profile.placement.override_tensor == () for each in told.profiles)
