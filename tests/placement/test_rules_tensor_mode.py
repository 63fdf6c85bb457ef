"""Rules on split mode `tensor`."""

from dataclasses import replace
from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import read_model
from app.placement.case import LaunchCase
from app.placement.rules import tensor_mode

TWO = ("CUDA0", "CUDA1")
ERROR, WARNING = Severity.ERROR, Severity.WARNING


def launch(
    tiny: TinyModels, speculation: dict[str, Any] | None = None, draft: str | None = None, **changes: Any
) -> LaunchCase:
    names = changes.pop("names", TWO)
    mode = changes.pop("mode", "tensor")
    wanted = profile(speculation=speculation or {}, placement={"split_mode": mode}, **changes)
    return case(
        wanted,
        target=read_model(tiny.dense_target),
        draft=read_model(getattr(tiny, draft)) if draft else None,
        device_names=names,
    )


@pytest.mark.parametrize("architecture", ["deepseek2", "olmo2", "minimax-m2", "nemotron_h_moe"])
def test_architectures_that_the_engine_refuses(architecture: str, tiny: TinyModels) -> None:
    judged = launch(tiny)
    assert tensor_mode.tensor_mode_architecture(judged) is None
    assert judged.target is not None
    refused = replace(judged, target=replace(judged.target, architecture=architecture))
    found_by(tensor_mode.tensor_mode_architecture, refused, "tensor-mode-architecture", ERROR)
    for other in (launch(tiny, mode="layer"), launch(tiny, names=())):
        assert other.target is not None
        elsewhere = replace(other, target=replace(other.target, architecture=architecture))
        assert tensor_mode.tensor_mode_architecture(elsewhere) is None


@pytest.mark.parametrize(
    ("method", "draft", "device", "refused"),
    [
        ("dflash", "dflash", "CUDA0", True),
        ("dflash", "dflash_own_head", "CUDA0", True),
        ("dspark", "dspark", None, True),
        ("mtp", "mtp_target", "CUDA0", True),
        ("mtp", None, None, False),
        ("eagle3", "eagle3", "CUDA0", True),
        ("eagle3", "eagle3_own_head", "CUDA0", False),
        ("draft", "draft", "CUDA0", False),
        # A draft on the host inherits the mode, and `needs >= 1 devices`.
        ("draft", "draft", "none", True),
        ("none", None, None, False),
    ],
)
def test_drafts_that_exclude_the_mode(
    method: str, draft: str | None, device: str | None, refused: bool, tiny: TinyModels
) -> None:
    speculation: dict[str, Any] = {"method": method}
    if draft is not None:
        speculation["draft"] = {"path": "d.gguf", "device": device}
    judged = launch(tiny, speculation, draft)
    if refused:
        found = found_by(tensor_mode.tensor_mode_draft, judged, "tensor-mode-draft", ERROR)
        assert patched(judged, found).profile.placement.split_mode == "layer"
    else:
        assert tensor_mode.tensor_mode_draft(judged) is None
    assert tensor_mode.tensor_mode_draft(launch(tiny, speculation, draft, names=())) is None


def test_the_mode_needs_flash_attention(tiny: TinyModels) -> None:
    judged = launch(tiny, context={"flash_attention": "off"})
    found = found_by(tensor_mode.tensor_mode_attention, judged, "tensor-mode-attention", ERROR)
    assert patched(judged, found).profile.context.flash_attention == "on"
    for setting in ("on", "auto"):
        assert tensor_mode.tensor_mode_attention(launch(tiny, context={"flash_attention": setting})) is None
    assert tensor_mode.tensor_mode_attention(launch(tiny, mode="layer", context={"flash_attention": "off"})) is None


@pytest.mark.parametrize("context", [{"k_type": "q8_0"}, {"v_type": "q4_0"}])
def test_of_a_quantised_cache_it_is_not_known(context: dict[str, str], tiny: TinyModels) -> None:
    found_by(tensor_mode.tensor_mode_attention, launch(tiny, context=context), "tensor-mode-attention", WARNING)
    assert tensor_mode.tensor_mode_attention(launch(tiny, context={"k_type": "bf16", "v_type": "f32"})) is None
    assert tensor_mode.tensor_mode_attention(launch(tiny, mode="layer", context=context)) is None
