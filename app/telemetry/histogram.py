"""Histograms with buckets that grow by a fixed ratio: small, added up exactly, and read with a known error.

Bucket i holds values from 1.04^i up to, not with, 1.04^(i+1), and stands for the value whose distance to both ends is
the same share of them, 1/51. So a percentile that is read is within 2 % of the value of that rank, and so is its
reciprocal (51/50). Zero has a bucket of its own.
"""

import math
from collections.abc import Mapping

RELATIVE_ERROR = 0.02

_RATIO = 1.04
_LOG_RATIO = math.log(_RATIO)
_MIDDLE = 2 * _RATIO / (_RATIO + 1)
_ZERO = -100_000

Histogram = dict[int, int]


def bucket(value: float) -> int:
    """The bucket of a value, which is not negative."""
    return math.floor(math.log(value) / _LOG_RATIO) if value > 0 else _ZERO


def add(histogram: Histogram, value: float) -> None:
    """Count a value, which is not negative."""
    number = bucket(value)
    histogram[number] = histogram.get(number, 0) + 1


def merge(histogram: Histogram, other: Mapping[int, int]) -> None:
    """Count all that the other has counted."""
    for number, count in other.items():
        histogram[number] = histogram.get(number, 0) + count


def value_of_rank(histogram: Mapping[int, int], rank: int) -> float:
    """The value with that many values up to and including it; ranks begin with 1. KeyError where there are fewer."""
    for number in sorted(histogram):
        rank -= histogram[number]
        if rank <= 0:
            return 0.0 if number == _ZERO else _RATIO**number * _MIDDLE
    raise KeyError(rank)
