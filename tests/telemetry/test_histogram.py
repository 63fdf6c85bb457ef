"""Buckets against the values themselves."""

import random

import pytest
from telemetry.percentiles import by_definition

from app.telemetry import histogram
from app.telemetry.histogram import RELATIVE_ERROR, Histogram
from app.telemetry.stats import nearest_rank


@pytest.mark.parametrize("spread", [0.01, 0.5, 2.0, 6.0])
def test_percentiles_and_those_of_reciprocals_are_within_two_percent(spread: float) -> None:
    chance = random.Random(11)  # noqa: S311
    values = [chance.lognormvariate(3, spread) for _ in range(2000)]
    parts: list[Histogram] = [{}, {}, {}]
    for value in values:
        histogram.add(chance.choice(parts), value)
    together: Histogram = {}
    for part in parts:
        histogram.merge(together, part)
    for percent in (50, 90, 99):
        rank = nearest_rank(len(values), percent)
        assert histogram.value_of_rank(together, rank) == pytest.approx(
            by_definition(values, percent), rel=RELATIVE_ERROR
        )
        reciprocal = 1 / histogram.value_of_rank(together, len(values) + 1 - rank)
        expected = by_definition([1 / value for value in values], percent)
        assert reciprocal == pytest.approx(expected, rel=RELATIVE_ERROR)


def test_the_worst_values_of_a_bucket_are_within_two_percent() -> None:
    for exponent in (-400, -3, 0, 1, 77, 500):
        for value in (1.04**exponent * (1 + 1e-12), 1.04 ** (exponent + 1) * (1 - 1e-12)):
            seen = histogram.value_of_rank({histogram.bucket(value): 1}, 1)
            assert abs(seen / value - 1) <= RELATIVE_ERROR
            assert abs(value / seen - 1) <= RELATIVE_ERROR


def test_zero_is_zero_and_comes_first() -> None:
    counted: Histogram = {}
    for value in (5e-9, 0, 3, 0):
        histogram.add(counted, value)
    assert [histogram.value_of_rank(counted, rank) for rank in (1, 2)] == [0.0, 0.0]
    assert histogram.value_of_rank(counted, 3) == pytest.approx(5e-9, rel=RELATIVE_ERROR)
    with pytest.raises(KeyError):
        histogram.value_of_rank(counted, 5)
