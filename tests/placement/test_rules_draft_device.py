"""Rules on where the draft model lives: every boundary on two devices and on none."""

from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched
from fixtures.tiny_models import TinyModels

from app.findings import Severity
from app.inventory.models import read_model
from app.placement.case import LaunchCase
from app.placement.rules import draft_device

TWO = ("CUDA0", "CUDA1")
ERROR, WARNING = Severity.ERROR, Severity.WARNING
BORROWERS = ("dspark", "dflash", "eagle3")


def launch(
    tiny: TinyModels, draft: str, names: tuple[str, ...] = TWO, *, on: dict[str, Any] | None = None, **placement: Any
) -> LaunchCase:
    """A launch of the dense target with one of the drafters, at the device given in `on`."""
    method = draft.removesuffix("_own_head")
    wanted = profile(
        speculation={"method": method, "draft": {"path": "d.gguf", **(on or {})}},
        placement={"tensor_split": [1, 1], **placement},
    )
    target, drafter = read_model(tiny.dense_target), read_model(getattr(tiny, draft))
    return case(wanted, target=target, draft=drafter, device_names=names)


@pytest.mark.parametrize("draft", BORROWERS)
@pytest.mark.parametrize(
    ("device", "placement", "needed"),
    [
        ("CUDA1", {}, None),
        (None, {}, None),
        ("CUDA0", {}, "CUDA1"),
        ("none", {}, "CUDA1"),
        ("CUDA0", {"tensor_split": [1, 0]}, None),
        # Nine units: a hundredth is not enough for the last one.
        ("CUDA1", {"tensor_split": [100, 1]}, "CUDA0"),
        ("CUDA0", {"tensor_split": [100, 1]}, None),
        ("CUDA1", {"gpu_layers": 1}, "CUDA0"),
        ("CUDA1", {"devices": ["CUDA1", "CUDA0"]}, "CUDA0"),
        ("CUDA1", {"split_mode": "none", "main_gpu": 0}, "CUDA0"),
        ("CUDA1", {"split_mode": "none", "main_gpu": 1}, None),
        # With the output on the host such launches run.
        ("CUDA0", {"gpu_layers": 0}, None),
        ("CUDA0", {"devices": ["none"]}, None),
        ("none", {"gpu_layers": 0}, None),
    ],
)
def test_a_borrowing_draft_sits_with_the_output(
    draft: str, device: str | None, placement: dict[str, Any], needed: str | None, tiny: TinyModels
) -> None:
    judged = launch(tiny, draft, on={"device": device}, **placement)
    if needed is None:
        assert draft_device.draft_not_with_output(judged) is None
        return
    found = found_by(draft_device.draft_not_with_output, judged, "draft-not-with-output", ERROR)
    assert "embeddings" in found.message
    fixed = patched(judged, found).profile.speculation.draft
    assert fixed is not None
    assert fixed.device == needed
    assert draft_device.draft_apart(judged) is None


@pytest.mark.parametrize("draft", ["dspark_own_head", "dflash_own_head", "eagle3_own_head", "draft"])
def test_a_draft_with_its_own_head_may_be_apart_and_is_slower(draft: str, tiny: TinyModels) -> None:
    apart = launch(tiny, draft, on={"device": "CUDA0"})
    assert draft_device.draft_not_with_output(apart) is None
    found = found_by(draft_device.draft_apart, apart, "draft-apart", WARNING)
    assert (found.expected, found.observed) == ("the draft on CUDA1", "the draft on CUDA0")
    for device, placement in (("CUDA1", {}), ("none", {}), ("CUDA0", {"gpu_layers": 0}), (None, {})):
        assert draft_device.draft_apart(launch(tiny, draft, on={"device": device}, **placement)) is None


def test_a_tensor_split_target_has_its_output_everywhere(tiny: TinyModels) -> None:
    for draft in ("dspark", "dspark_own_head"):
        judged = launch(tiny, draft, on={"device": "CUDA0"}, split_mode="tensor")
        assert draft_device.draft_not_with_output(judged) is None
        assert draft_device.draft_apart(judged) is None


@pytest.mark.parametrize("draft", ["draft", "dspark"])
def test_on_several_devices_the_draft_names_its_own(draft: str, tiny: TinyModels) -> None:
    judged = launch(tiny, draft)
    found = found_by(draft_device.draft_device_unset, judged, "draft-device-unset", WARNING)
    assert found.fixes[0].patch == {"speculation": {"draft": {"device": "CUDA1"}}}
    assert draft_device.draft_device_unset(launch(tiny, draft, on={"device": "CUDA0"})) is None
    assert draft_device.draft_device_unset(launch(tiny, draft, ("CUDA0",), tensor_split=None)) is None
    assert draft_device.draft_device_unset(launch(tiny, draft, ())) is None
    assert draft_device.draft_device_unset(launch(tiny, draft, split_mode="none")) is None
    assert draft_device.draft_device_unset(launch(tiny, draft, gpu_layers=0)) is None


@pytest.mark.parametrize(
    ("on", "placement", "slow"),
    [
        ({"device": "CUDA1"}, {}, False),
        ({}, {}, False),
        ({"device": "none"}, {}, True),
        ({"device": "CUDA1", "gpu_layers": 0}, {}, True),
        # One layer and the output: two units.
        ({"device": "CUDA1", "gpu_layers": 1}, {}, True),
        ({"device": "CUDA1", "gpu_layers": 2}, {}, False),
        ({"device": "CUDA1", "gpu_layers": "auto"}, {}, False),
        # The whole launch is on the host.
        ({"device": "none"}, {"gpu_layers": 0}, False),
        ({}, {"gpu_layers": 0}, False),
        ({"device": "none"}, {"devices": ["none"]}, False),
        ({"device": "CUDA0", "gpu_layers": 0}, {"devices": ["none"]}, False),
        # It is not.
        ({"device": "CUDA0", "gpu_layers": 1}, {"devices": ["none"]}, True),
        ({"device": "none"}, {"gpu_layers": 1}, True),
    ],
)
def test_a_draft_on_the_host_is_a_judgement(
    on: dict[str, Any], placement: dict[str, Any], slow: bool, tiny: TinyModels
) -> None:
    judged = launch(tiny, "draft", on=on, **placement)
    if slow:
        found = found_by(draft_device.draft_on_host, judged, "draft-on-host", ERROR, overridable=True)
        fixed = patched(judged, found).profile.speculation.draft
        assert fixed is not None
        assert (fixed.device in TWO, fixed.gpu_layers) == (True, "all")
    else:
        assert draft_device.draft_on_host(judged) is None


@pytest.mark.parametrize("draft", ["draft", "dspark", "dspark_own_head", "eagle3"])
@pytest.mark.parametrize("device", [None, "none"])
def test_without_a_device_all_of_them_are_silent(draft: str, device: str | None, tiny: TinyModels) -> None:
    judged = launch(tiny, draft, (), on={"device": device}, tensor_split=None)
    assert [rule(judged) for rule in draft_device.RULES] == [None] * len(draft_device.RULES)


@pytest.mark.parametrize("method", ["none", "mtp", "ngram-mod"])
def test_without_a_draft_model_all_of_them_are_silent(method: str, tiny: TinyModels) -> None:
    wanted = profile(speculation={"method": method}, placement={"tensor_split": [1, 1]})
    judged = case(wanted, target=read_model(tiny.mtp_target), device_names=TWO)
    assert [rule(judged) for rule in draft_device.RULES] == [None] * len(draft_device.RULES)
