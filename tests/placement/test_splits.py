"""The best split against every split there is."""

from itertools import pairwise

import pytest
from fixtures.oracle import SparseFolder
from fixtures.planning import cards, question

from app.placement.splits import Split, best_split, split_patch
from app.placement.trials import Trials


def found(
    sparse: SparseFolder, target: str, sizes: tuple[float, ...], moved: int, method: str = "none"
) -> tuple[Split, Trials, int]:
    asked = question(
        sparse, target, cards(*sizes), placement={"cpu_moe_layers": moved}, speculation={"method": method},
        context={"size": 16_384},
    )  # fmt: skip
    trials = Trials(asked.case, asked.planned, asked.replan)
    model = sparse.planned(target)
    asked.plans = 0
    split = best_split(
        model, asked.case.machine.device_names, lambda counts: trials.plain(split_patch(counts)), model.shape.unit_count
    )
    assert split is not None
    return split, trials, asked.plans


@pytest.mark.parametrize("sizes", [(24, 24), (24, 12), (12, 24)])
@pytest.mark.parametrize(
    ("target", "moved", "method"),
    [
        ("qwen3_8b", 0, "none"),
        ("gemma3_27b", 0, "none"),
        ("qwen3moe_30b", 20, "none"),
        ("glm4moe_air", 12, "mtp"),
        ("qwen35moe_35b", 7, "mtp"),
    ],
)
def test_of_two_devices_the_busiest_has_the_most_room(
    sparse: SparseFolder, target: str, sizes: tuple[float, ...], moved: int, method: str
) -> None:
    split, trials, plans = found(sparse, target, sizes, moved, method)
    units = sparse.planned(target).shape.unit_count
    every = [trials.plain(split_patch((first, units - first))).room_bytes for first in range(1, units)]
    assert split.trial.room_bytes == max(every)
    assert plans <= 14


@pytest.mark.parametrize("sizes", [(24, 24, 24), (24, 12, 48), (16,) * 8, (24, 12, 32, 48, 24, 24, 16, 80)])
def test_of_many_devices_no_single_layer_moves_to_more_room(sparse: SparseFolder, sizes: tuple[float, ...]) -> None:
    split, trials, plans = found(sparse, "qwen3moe_235b", sizes, 40)
    assert sum(split.counts) == sparse.planned("qwen3moe_235b").shape.unit_count
    assert all(count > 0 for count in split.counts)
    for index, (left, right) in enumerate(pairwise(split.counts)):
        for step in (-1, 1):
            moved = list(split.counts)
            moved[index], moved[index + 1] = left + step, right - step
            if min(moved) > 0:
                assert trials.plain(split_patch(tuple(moved))).room_bytes <= split.trial.room_bytes
    assert plans <= 40


def test_counts_are_shares_that_divide_exactly_so(sparse: SparseFolder) -> None:
    split, _, _ = found(sparse, "dense_llama_70b", (24, 24, 24), 0)
    spans = split.trial.planned.layers
    layers = [span.last - span.first + 1 for span in spans]
    # The output is one unit more on the last.
    assert (*layers[:-1], layers[-1] + 1) == split.counts


def test_a_device_with_nothing_to_hold_has_no_split(sparse: SparseFolder) -> None:
    asked = question(sparse, "qwen3_8b", cards(24, 24))
    trials = Trials(asked.case, asked.planned, asked.replan)
    names = asked.case.machine.device_names
    model = sparse.planned("qwen3_8b")
    assert best_split(model, names, lambda counts: trials.plain(split_patch(counts)), 1) is None
    assert best_split(model, names[:1], lambda counts: trials.plain(split_patch(counts)), 37) is None


def test_what_is_left_over_is_spread(sparse: SparseFolder) -> None:
    """Nine units on the fullest cards are the best there is; the last card does not stay half empty for that."""
    split, _, _ = found(sparse, "qwen3_32b", (24,) * 8, 0)
    lefts = [budget.headroom_bytes for budget in split.trial.planned.devices]
    assert max(split.counts) - min(split.counts) <= 2
    assert min(lefts) == split.trial.room_bytes
