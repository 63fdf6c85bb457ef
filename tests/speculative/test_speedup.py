"""Speed-ups by hand, and their intervals against what was drawn."""

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from app.speculative.speedup import RESAMPLES, Resampler, Stratum, Timed, estimates


def seeded(breathe: Callable[[], object] = lambda: None) -> Resampler:
    return Resampler(random.Random(1), breathe)  # noqa: S311


def timed(*requests: tuple[int, int]) -> Timed:
    """Of requests with these tokens and microseconds."""
    found = Timed()
    for tokens, microseconds in requests:
        found.add(1, tokens, microseconds)
    return found


def same(count: int, tokens: int, seconds: float) -> Timed:
    return timed(*[(tokens, round(seconds * 1e6))] * count)


def test_requests_that_are_all_alike_leave_no_doubt() -> None:
    together, by_name = estimates([Stratum("code", same(6, 100, 2), same(7, 50, 2))], seeded())
    assert (together.speedup, together.interval, together.pays) == (2.0, (2.0, 2.0), True)
    assert (together.requests, together.baseline_requests) == (6, 7)
    assert by_name == {"code": together}


def test_long_requests_weigh_more() -> None:
    """The rate is that of all tokens: 1,100 tokens in 12 s, not the mean of 100 and 50 tokens/s."""
    speculated = timed((1000, 10_000_000), (100, 2_000_000))
    together, _ = estimates([Stratum(None, speculated, timed((110, 12_000_000)))], None)
    assert together.speedup == pytest.approx(10.0)


def test_more_of_the_easy_work_is_no_speed_up() -> None:
    """Code goes at 100 tokens/s and translations at 10, on both sides; one side had mostly code, the other not."""
    strata = [
        Stratum("code", same(90, 100, 1), same(10, 100, 1)),
        Stratum("translation", same(10, 10, 1), same(90, 10, 1)),
    ]
    together, by_name = estimates(strata, seeded())
    assert together.speedup == by_name["code"].speedup == by_name["translation"].speedup == 1.0
    assert together.pays is None


def test_each_kind_of_work_has_its_own() -> None:
    """By hand: 600 tokens of code would have taken 12 s and took 4, 60 of translations 1.2 s and took 2.4."""
    strata = [
        Stratum("code", timed(*[(100, 600_000), (100, 733_333), (100, 666_667)] * 2), same(5, 50, 1)),
        Stratum("translation", same(6, 10, 0.4), same(5, 50, 1)),
    ]
    together, by_name = estimates(strata, seeded())
    assert by_name["code"].speedup == pytest.approx(3.0)
    assert by_name["translation"].speedup == pytest.approx(0.5)
    assert together.speedup == pytest.approx(13.2 / 6.4)
    assert (by_name["code"].pays, by_name["translation"].pays) == (True, False)


def test_two_baselines_of_one_kind_of_work() -> None:
    strata = [Stratum("code", same(5, 100, 1), same(5, 50, 1)), Stratum("code", same(15, 100, 1), same(5, 25, 1))]
    together, by_name = estimates(strata, seeded())
    assert together.speedup == by_name["code"].speedup == pytest.approx((5 * 2 + 15 * 4) / 20)
    assert together.requests == 20


def test_what_scatters_more_is_less_sure() -> None:
    def width(spread: float, count: int) -> float:
        chance = random.Random(3)  # noqa: S311
        scattered = timed(*((100, round(1e6 * (1 + spread * chance.uniform(-1, 1)))) for _ in range(count)))
        low, high = estimates([Stratum(None, scattered, same(10, 50, 1))], seeded())[0].interval or (0, 0)
        assert low < 2.0 < high
        return high - low

    assert width(0.1, 50) < width(0.5, 50)
    # Twenty times the requests, and less than a third of the width, although sums of several are drawn.
    assert width(0.5, 1000) < width(0.5, 50) / 3


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Experiments with a true speed-up of 1.5, of a handful of requests and of many. Percentiles alone would hold it in
    88 of 100 with five.
    """
    chance = random.Random(11)  # noqa: S311

    def side(rate: float, count: int) -> Timed:
        lengths = [chance.randrange(20, 400) for _ in range(count)]
        return timed(*((tokens, round(tokens / rate * chance.uniform(0.6, 1.4) * 1e6)) for tokens in lengths))

    def holds(count: int) -> bool:
        low, high = estimates([Stratum(None, side(45, count), side(30, count))], seeded())[0].interval or (0, 0)
        return low <= 1.5 <= high

    for count in (5, 10, 20, 60):
        assert 0.91 <= sum(holds(count) for _ in range(200)) / 200 <= 0.995, count


def test_neighbours_that_are_alike_are_no_certainty() -> None:
    """Load that comes and goes makes ten requests slow and ten fast, on both sides alike. Drawn one by one, every other
    of such experiments would be sure of a gain or a loss; drawn in runs, one in six or so.
    """
    chance = random.Random(5)  # noqa: S311

    def side() -> Timed:
        loads = [chance.lognormvariate(0, 0.3) for _ in range(20)]
        return timed(*((100, round(1e6 * load)) for load in loads for _ in range(10)))

    sure = sum(estimates([Stratum(None, side(), side())], seeded())[0].pays is not None for _ in range(100))
    assert sure < 25


@pytest.mark.parametrize(("speculated", "plain", "is_enough"), [(5, 5, True), (4, 500, False), (500, 4, False)])
def test_few_requests_are_not_compared(speculated: int, plain: int, is_enough: bool) -> None:
    assert Stratum(None, same(speculated, 10, 1), same(plain, 10, 1)).is_enough is is_enough


def blocks(requests: Iterable[int]) -> Timed:
    found = Timed()
    for count in requests:
        found.add(count, 10 * count, count * 1_000_000)
    return found


@pytest.mark.parametrize(("sizes", "is_sure"), [([100] * 4, False), ([1000], False), ([100] * 5, True)])
def test_few_blocks_give_no_interval(sizes: Sequence[int], is_sure: bool) -> None:
    """Neither for their kind of work nor for all of it together, however many requests are in them."""
    strata = [Stratum("code", blocks(sizes), same(9, 10, 1)), Stratum("qa", same(9, 10, 1), same(9, 10, 1))]
    together, by_name = estimates(strata, seeded())
    assert [each.interval is not None for each in (together, by_name["code"], by_name["qa"])] == [
        is_sure,
        is_sure,
        True,
    ]
    assert (together.speedup, together.requests) == (1.0, sum(sizes) + 9)


def test_without_chance_there_is_no_interval() -> None:
    together, by_name = estimates([Stratum("code", same(9, 20, 1), same(9, 10, 1))], None)
    assert (together.speedup, together.interval, together.pays) == (2.0, None, None)
    assert by_name["code"] == together


def test_between_draws_there_is_a_breath() -> None:
    """1,000 times for nine numbers, and for each side; the baseline is drawn once for all."""
    breaths: list[None] = []
    resampler = seeded(lambda: breaths.append(None))
    plain = same(9, 10, 1)
    estimates([Stratum(None, same(9, 20, 1), plain)], resampler)
    assert len(breaths) == 3 * RESAMPLES
    estimates([Stratum(None, same(9, 30, 1), plain)], resampler)
    assert len(breaths) == 4 * RESAMPLES


def test_two_sides_are_not_drawn_alike() -> None:
    """The same numbers on both sides: drawn alike, every ratio were one."""
    side = [(100, 1_000_000), (100, 3_000_000)] * 10
    together, _ = estimates([Stratum(None, timed(*side), timed(*side))], seeded())
    assert together.interval is not None
    low, high = together.interval
    assert low < 0.85
    assert high > 1.15
