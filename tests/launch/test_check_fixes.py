"""What a check offers passes its own check, with the real engine as witness of both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fixtures.cases import profile
from fixtures.checks import launch_check
from fixtures.sparse_models import write_model

from app.inventory.devices import Host, Machine
from app.launch.report import PlacementReport, Verdict
from app.profiles.profile import LaunchProfile, document_of, merge_patch, parse_profile

pytestmark = pytest.mark.engine

GIB, MIB = 1 << 30, 1 << 20
_STEP_TOKENS = 1024


async def on_host(folder: Path, engine: Path, wanted: LaunchProfile, available_bytes: int) -> PlacementReport:
    """The report of a launch that meets this host and no device."""

    async def machine(_: Mapping[str, str]) -> Machine:
        return Machine((), Host(64 * GIB, available_bytes))

    return (await launch_check(folder, engine=str(engine), machine=machine).check(wanted, 1)).report


def changed(wanted: LaunchProfile, patch: Mapping[str, Any]) -> LaunchProfile:
    return parse_profile(merge_patch(document_of(wanted), patch))


def resident_bytes(report: PlacementReport) -> int:
    return int(report.host["required_bytes"] - report.host["mapped_bytes"])


@pytest.mark.parametrize(
    "context",
    [
        {"k_type": "f32", "v_type": "f32", "flash_attention": "off"},
        # The engine takes some MiB more here than the plan.
        {"ubatch_size": 2048},
    ],
)
async def test_a_host_fix_passes_its_own_check(engine_path: Path, tmp_path: Path, context: dict[str, Any]) -> None:
    write_model("qwen35moe_35b", tmp_path)
    wanted = profile(
        target={"path": "qwen35moe_35b.gguf"},
        speculation={"method": "mtp"},
        placement={"devices": []},
        context={"size": 65_536, "prompt_cache_bytes": 0, **context},
    )
    large = await on_host(tmp_path, engine_path, changed(wanted, {"context": {"size": 28_672}}), 256 * GIB)
    assert large.estimate_source == "engine"
    # One MiB too little for 28,672 tokens.
    available = resident_bytes(large) - MIB
    refused = await on_host(tmp_path, engine_path, wanted, available)
    (found,) = (one for one in refused.findings if one.rule == "host-memory")
    (size,) = (fix.patch["context"]["size"] for fix in found.fixes)
    # Not that one, and no less than there is room for: the plan is a little apart from the engine at either size.
    assert 28_672 - 2 * _STEP_TOKENS <= size < 28_672
    for fix in found.fixes:
        mended = await on_host(tmp_path, engine_path, changed(wanted, fix.patch), available)
        assert (mended.estimate_source, mended.verdict) == ("engine", Verdict.FITS_WITH_WARNINGS)
        assert resident_bytes(mended) <= available
