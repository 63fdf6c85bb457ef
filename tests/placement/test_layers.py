"""Units to devices: the engine's own examples, and its arithmetic at the borders."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.placement.layers import HOST, Layout, assign

TWO = ("RPC0", "RPC1")


def counts(layout: Layout) -> list[int]:
    return [len(layout.units_on(device)) for device in (HOST, *range(len(layout.devices)))]


@pytest.mark.parametrize(
    ("gpu_layers", "split", "expected"),
    [
        # Measured with five layers and the output: host, first, second device.
        ("all", (1, 1), [0, 3, 3]),
        ("all", (3, 1), [0, 5, 1]),
        (3, (1, 1), [3, 2, 1]),
        (1, (1, 1), [5, 1, 0]),
        (0, (1, 1), [6, 0, 0]),
        ("all", (1, 0), [0, 6, 0]),
        (99, (0, 1), [0, 0, 6]),
    ],
)
def test_units_are_divided_as_the_engine_does(
    gpu_layers: int | str, split: tuple[float, float], expected: list[int]
) -> None:
    layout = assign(6, TWO, gpu_layers, tensor_split=split)  # type: ignore[arg-type]
    assert counts(layout) == expected


def test_the_last_units_leave_the_host() -> None:
    assert assign(6, TWO, 2, tensor_split=(1, 1)).units == (HOST, HOST, HOST, HOST, 0, 1)


def test_shares_follow_the_order_of_the_devices() -> None:
    layout = assign(81, ("RPC1", "RPC0"), "all", tensor_split=(3, 1))
    assert layout.devices == ("RPC1", "RPC0")
    assert counts(layout) == [0, 61, 20]


def test_without_shares_free_memory_decides() -> None:
    assert counts(assign(100, TWO, "all", free_bytes=(30 << 30, 10 << 30))) == [0, 75, 25]
    assert counts(assign(100, TWO, "all", tensor_split=(0, 0))) == [0, 50, 50]


def test_mode_none_takes_one_device() -> None:
    layout = assign(6, TWO, "all", "none", (3, 1), main_gpu=1)
    assert layout.devices == ("RPC1",)
    assert layout.used == (0,)
    assert layout.output == 0


def test_mode_tensor_shares_every_unit() -> None:
    layout = assign(6, TWO, 4, "tensor", (3, 1))
    assert layout.is_shared
    assert layout.shares == (0.75, 0.25)
    assert layout.units == (HOST, HOST, 0, 0, 0, 0)


def test_no_device_is_the_host() -> None:
    assert assign(6, (), "all").units == (HOST,) * 6


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    units=st.integers(1, 130),
    shares=st.lists(st.integers(0, 97), min_size=1, max_size=8).filter(any),
    gpu_layers=st.integers(0, 140),
)
def test_every_unit_has_the_device_that_its_share_reaches(units: int, shares: list[int], gpu_layers: int) -> None:
    """Against exact fractions, except where a unit lies on a border and rounding decides."""
    layout = assign(units, [f"D{at}" for at in range(len(shares))], gpu_layers, tensor_split=shares)
    offloaded = min(units, gpu_layers)
    assert layout.units[: units - offloaded] == (HOST,) * (units - offloaded)
    placed = [device for device in layout.units if device is not None]
    assert placed == sorted(placed)
    for at, device in enumerate(placed):
        begins, ends = Fraction(sum(shares[:device]), sum(shares)), Fraction(sum(shares[: device + 1]), sum(shares))
        assert begins - Fraction(1, 10**6) <= Fraction(at, offloaded) <= ends + Fraction(1, 10**6)
