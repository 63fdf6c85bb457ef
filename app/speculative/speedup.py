"""How much faster a target generates with speculation than without it, and how sure that is."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from statistics import NormalDist
from typing import Any, Final, Protocol

_Draw = Callable[[Sequence[int]], Sequence[int]]
# Tokens and microseconds.
_Sums = tuple[int, int]
# Microseconds that tokens would have taken without speculation, and that they took.
_Times = tuple[float, int]

CONFIDENCE: Final = 0.95
# Fewer on a side say nothing, not even roughly.
REQUESTS_LEAST: Final = 5
RESAMPLES: Final = 1000
# So many runs of requests stand for all of a side. Neighbours are alike, as the load was when they came: drawn one by
# one, they would look more certain than they are.
_DRAWN_MOST: Final = 24


@dataclass(slots=True)
class Timed:
    """Requests with a rate: their tokens after the first, and the microseconds these took. `blocks` are the same of
    single requests or of several, in the order of time, which is what a bootstrap draws from.
    """

    requests: int = 0
    tokens: int = 0
    microseconds: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)

    def add(self, requests: int, tokens: int, microseconds: int) -> None:
        """Add a block."""
        self.requests += requests
        self.tokens += tokens
        self.microseconds += microseconds
        self.blocks.append((tokens, microseconds))

    def merge(self, other: "Timed") -> None:
        """Add all that the other has."""
        self.requests += other.requests
        self.tokens += other.tokens
        self.microseconds += other.microseconds
        self.blocks.extend(other.blocks)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Requests of one kind, `name`, with speculation and without."""

    name: str | None
    speculated: Timed
    plain: Timed

    @property
    def is_enough(self) -> bool:
        """Whether it can be compared."""
        return min(self.speculated.requests, self.plain.requests) >= REQUESTS_LEAST


@dataclass(frozen=True, slots=True)
class Estimate:
    """A speed-up, and the interval that holds it with CONFIDENCE; None where there are too few blocks to draw from."""

    speedup: float
    interval: tuple[float, float] | None
    requests: int
    baseline_requests: int

    @property
    def pays(self) -> bool | None:
        """Whether speculation gives more than it costs; None where that cannot be told."""
        if self.interval is None or self.interval[0] <= 1 <= self.interval[1]:
            return None
        return self.interval[0] > 1


class Chance(Protocol):
    """What random.Random has."""

    def choices(self, population: Sequence[int], *, k: int) -> Sequence[int]:
        """So many of them, each with the same chance."""

    def shuffle(self, x: list[Any], /) -> None:
        """Put them in any order."""


class Resampler:
    """Sums of requests as they might have been: RESAMPLES times, as many blocks as there are, drawn from these.

    What to draw is thrown once for each number of blocks, and shuffled for each side: as good, and it costs a fourth.
    """

    def __init__(self, chance: Chance, breathe: Callable[[], object] = lambda: None) -> None:
        """`breathe` is called now and then."""
        self._chance = chance
        self._breathe = breathe
        self._draws: dict[int, list[_Draw]] = {}
        self._kept: dict[int, tuple[Timed, Sequence[_Sums]]] = {}

    def kept(self, side: Timed) -> Sequence[_Sums]:
        """As `sums`, and the same when asked again: a baseline serves many."""
        if id(side) not in self._kept:
            self._kept[id(side)] = (side, self.sums(side))
        return self._kept[id(side)][1]

    def sums(self, side: Timed) -> Sequence[_Sums]:
        """Nothing where there are too few blocks."""
        if len(side.blocks) < REQUESTS_LEAST:
            return ()
        count = min(len(side.blocks), _DRAWN_MOST)
        ends = [len(side.blocks) * number // count for number in range(count + 1)]
        tokens, microseconds = (
            [sum(column[start:end]) for start, end in pairwise(ends)] for column in zip(*side.blocks, strict=True)
        )
        found = []
        for draw in self._drawn(count):
            found.append((sum(draw(tokens)), sum(draw(microseconds))))
            self._breathe()
        return found

    def _drawn(self, count: int) -> Sequence[_Draw]:
        if count not in self._draws:
            self._draws[count] = []
            for _ in range(RESAMPLES):
                self._draws[count].append(itemgetter(*self._chance.choices(range(count), k=count)))
                self._breathe()
        self._chance.shuffle(self._draws[count])
        return self._draws[count]


def estimates(strata: Sequence[Stratum], resampler: Resampler | None) -> tuple[Estimate, Mapping[str | None, Estimate]]:
    """The speed-up of all strata together, and by their name; there is at least one, and each is enough.

    It is the time that the tokens of the speculating side would have taken without, stratum by stratum, ÷ the time
    that they took: that one side had more easy work does not count. The interval is that of percentiles of a bootstrap,
    left out without a `resampler`.
    """
    resampled = [() if resampler is None else _resampled(stratum, resampler) for stratum in strata]
    by_name: dict[str | None, list[int]] = {}
    for number, stratum in enumerate(strata):
        by_name.setdefault(stratum.name, []).append(number)

    def estimate(numbers: Iterable[int]) -> Estimate:
        return _estimate([strata[number] for number in numbers], [resampled[number] for number in numbers])

    return estimate(range(len(strata))), {name: estimate(numbers) for name, numbers in by_name.items()}


def _estimate(strata: Sequence[Stratum], resampled: Sequence[Sequence[_Times]]) -> Estimate:
    interval = None
    if all(resampled):
        ratios, tail = sorted(map(_ratio, zip(*resampled, strict=True))), _tail(strata)
        left_out = max(math.ceil(RESAMPLES * tail), 1)
        interval = (ratios[left_out - 1], ratios[-left_out])
    return Estimate(
        _ratio([_times(_sums(stratum.speculated), _sums(stratum.plain)) for stratum in strata]),
        interval,
        sum(stratum.speculated.requests for stratum in strata),
        sum(stratum.plain.requests for stratum in strata),
    )


def _tail(strata: Sequence[Stratum]) -> float:
    """How much of the resampled ratios to leave out on each side.

    Few blocks scatter less when they are drawn from than the requests did that they stand for, and what is known of the
    scatter is itself unsure. Both together is Hesterberg's expanded percentile interval: less is left out.
    """
    blocks = min(sum(min(len(side.blocks), _DRAWN_MOST) for side in sides) for sides in _both_sides(strata))
    freedom = max(blocks - len(strata), 1)
    wider = _student(NormalDist().inv_cdf((1 + CONFIDENCE) / 2), freedom) * math.sqrt((freedom + 1) / freedom)
    return NormalDist().cdf(-wider)


def _both_sides(strata: Sequence[Stratum]) -> tuple[Sequence[Timed], Sequence[Timed]]:
    return [stratum.speculated for stratum in strata], [stratum.plain for stratum in strata]


def _student(z: float, freedom: int) -> float:
    """The quantile of Student's t where that of the normal distribution is z: the first terms of its expansion."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _resampled(stratum: Stratum, resampler: Resampler) -> Sequence[_Times]:
    speculated, plain = resampler.sums(stratum.speculated), resampler.kept(stratum.plain)
    return [_times(*pair) for pair in zip(speculated, plain, strict=True)] if speculated and plain else ()


def _sums(side: Timed) -> _Sums:
    return side.tokens, side.microseconds


def _times(speculated: _Sums, plain: _Sums) -> _Times:
    return speculated[0] * plain[1] / plain[0], speculated[1]


def _ratio(times: Iterable[_Times]) -> float:
    without, taken = map(sum, zip(*times, strict=True))
    return without / taken
