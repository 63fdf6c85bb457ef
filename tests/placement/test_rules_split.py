"""Rules on the division of the target over devices."""

from typing import Any

import pytest
from fixtures.cases import case, profile
from fixtures.fixes import found_by, patched

from app.findings import Severity
from app.placement.case import LaunchCase
from app.placement.rules import split

TWO = ("CUDA0", "CUDA1")
THREE = ("CUDA0", "CUDA1", "CUDA2")


def on(names: tuple[str, ...], **placement: Any) -> LaunchCase:
    return case(profile(placement=placement), device_names=names)


@pytest.mark.parametrize(
    ("names", "shares"),
    [
        (TWO, [1, 1, 1]),
        (TWO, [0, 0, 1]),
        (TWO, [1]),
        (TWO, []),
        (TWO, [-1, 1]),
        (TWO, [2, -1]),
        (TWO, [0, 0]),
        (THREE, [1, 0, 1]),
        (("CUDA0",), [1, 1]),
        (("CUDA0",), [0]),
    ],
)
def test_one_positive_share_for_each_device(names: tuple[str, ...], shares: list[float]) -> None:
    judged = on(names, tensor_split=shares)
    found = found_by(split.split_shape, judged, "split-shape", Severity.ERROR)
    assert found.fixes
    assert split.split_to_one(judged) is None


@pytest.mark.parametrize(
    ("names", "shares"), [(TWO, [1, 1]), (TWO, [3, 0.5]), (THREE, [1, 2, 3]), (("CUDA0",), [1]), (TWO, [100, 0])]
)
def test_shares_that_the_engine_can_use(names: tuple[str, ...], shares: list[float]) -> None:
    assert split.split_shape(on(names, tensor_split=shares)) is None


def test_shares_count_within_the_devices_of_the_launch() -> None:
    assert split.split_shape(on(THREE, devices=["CUDA2", "CUDA0"], tensor_split=[1, 2])) is None
    found_by(
        split.split_shape,
        on(THREE, devices=["CUDA2", "CUDA0"], tensor_split=[1, 2, 3]),
        "split-shape",
        Severity.ERROR,
    )


def test_a_device_without_a_share_is_left_out_by_the_fix() -> None:
    judged = on(THREE, tensor_split=[1, 0, 2])
    found = found_by(split.split_shape, judged, "split-shape", Severity.ERROR)
    after = patched(judged, found).profile.placement
    assert (after.devices, after.tensor_split) == (("CUDA0", "CUDA2"), (1, 2))


def test_shares_mean_nothing_on_one_device_or_none() -> None:
    assert split.split_shape(on(TWO, tensor_split=[1], split_mode="none")) is None
    assert split.split_shape(on((), tensor_split=[1, 1])) is None
    assert split.split_shape(on(TWO, devices=["none"], tensor_split=[1, 1])) is None


@pytest.mark.parametrize("mode", ["layer", "row"])
def test_several_devices_want_a_split(mode: str) -> None:
    judged = on(TWO, split_mode=mode)
    found = found_by(split.split_implicit, judged, "split-implicit", Severity.WARNING)
    assert patched(judged, found).profile.placement.tensor_split == (23, 23)
    assert split.split_implicit(on(TWO, split_mode=mode, tensor_split=[1, 1])) is None


@pytest.mark.parametrize(
    ("names", "placement"),
    [
        (("CUDA0",), {}),
        ((), {}),
        (TWO, {"devices": ["CUDA1"]}),
        (TWO, {"split_mode": "none"}),
        # Mode tensor divides evenly where nothing is said.
        (TWO, {"split_mode": "tensor"}),
        (TWO, {"gpu_layers": 0}),
    ],
)
def test_without_several_devices_there_is_nothing_to_split(names: tuple[str, ...], placement: dict[str, Any]) -> None:
    assert split.split_implicit(on(names, **placement)) is None


def test_without_figures_there_is_no_split_to_offer() -> None:
    judged = case(profile(placement={"devices": ["A0", "A1"]}), device_names=TWO)
    assert found_by(split.split_implicit, judged, "split-implicit", Severity.WARNING).fixes == []


@pytest.mark.parametrize(("shares", "index"), [([100, 0], 0), ([0, 1], 1)])
def test_all_on_one_device_is_said_otherwise(shares: list[float], index: int) -> None:
    judged = on(TWO, tensor_split=shares)
    found = found_by(split.split_to_one, judged, "split-to-one", Severity.WARNING)
    after = patched(judged, found)
    assert (after.profile.placement.split_mode, after.profile.placement.main_gpu) == ("none", index)
    assert split.main_gpu_unknown(after) is None
    assert split.split_to_one(on(TWO, tensor_split=[100, 1])) is None
    assert split.split_to_one(on(("CUDA0",), tensor_split=[1])) is None


@pytest.mark.parametrize(("mode", "ignored"), [("layer", True), ("tensor", True), ("none", False), ("row", False)])
def test_the_main_device_counts_in_some_modes(mode: str, ignored: bool) -> None:
    judged = on(TWO, split_mode=mode, main_gpu=1)
    if ignored:
        found = found_by(split.main_gpu_ignored, judged, "main-gpu-ignored", Severity.INFO)
        assert patched(judged, found, 1).profile.placement.split_mode == "none"
    else:
        assert split.main_gpu_ignored(judged) is None
    assert split.main_gpu_ignored(on(TWO, split_mode=mode)) is None


def test_the_main_device_is_one_of_the_launch() -> None:
    assert split.main_gpu_unknown(on(TWO, split_mode="none", main_gpu=1)) is None
    judged = on(TWO, split_mode="none", main_gpu=2)
    found_by(split.main_gpu_unknown, judged, "main-gpu-unknown", Severity.ERROR)
    assert split.main_gpu_unknown(on(TWO, main_gpu=2)) is None
    assert split.main_gpu_unknown(on((), split_mode="none", main_gpu=2)) is None


@pytest.mark.parametrize("mode", ["layer", "none"])
def test_more_than_15_shares_end_the_engine(mode: str) -> None:
    """Measured: with 16 shares the engine exits, `got 16 input configs, but system only has 16 devices`."""
    names = tuple(f"RPC{index}" for index in range(15))

    def judged(count: int) -> LaunchCase:
        return case(profile(placement={"tensor_split": [1.0] * count, "split_mode": mode}), device_names=names)

    found = found_by(split.split_shape, judged(16), "split-shape", Severity.ERROR)
    assert "16 shares" in found.message
    after = patched(judged(16), found).profile.placement.tensor_split
    assert after == ((1.0,) * 15 if mode == "layer" else None)
    assert split.split_shape(judged(15)) is None
