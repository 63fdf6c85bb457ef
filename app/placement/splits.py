"""The split of layers over devices whose busiest device has the most room left."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from app.placement.assembly import PlannedModel
from app.placement.trials import Trial

_ROUNDS = 4
_STEPS = 6
_LEVELLINGS = 20
Counts = tuple[int, ...]
Attempt = Callable[[Counts], Trial]


@dataclass(frozen=True, slots=True)
class Split:
    """Units by device in order, which are shares that divide exactly so, and the trial with them."""

    counts: Counts
    trial: Trial

    @property
    def text(self) -> str:
        """The shares as the engine reads them."""
        return ",".join(map(str, self.counts))


def split_patch(counts: Counts) -> dict[str, object]:
    """The change that divides so. Counts as shares have no rounding at their borders."""
    return {"placement": {"split_mode": "layer", "tensor_split": list(counts)}}


def best_split(
    model: PlannedModel,
    devices: Sequence[str],
    attempt: Attempt,
    offloaded: int,
    near: Counts | None = None,
    *,
    need_room: bool = False,
) -> Split | None:
    """Divide `offloaded` units; None where a device would have none, or its memory is not known.

    With `need_room` also where all devices together have not got the room: no split can help then.

    `attempt` plans given counts. For two devices the answer is the best there is; for more it is found by filling
    devices to one level, then moving single layers. `near` is where a search of a similar launch ended.
    """
    count = len(devices)
    if count < 2 or offloaded < count:
        return None
    search = _Search(devices, attempt)
    start = near if near and len(near) == count and sum(near) == offloaded else _even(offloaded, count)
    if any(not budget.is_known for budget in search.at(start).planned.devices if budget.name in devices):
        return None
    if need_room and sum(search.left(start)) < 0:
        return None
    if count == 2:
        return search.between_two(offloaded)
    return search.among_many(start, model)


class _Search:
    """One search; every split is planned once."""

    def __init__(self, devices: Sequence[str], attempt: Attempt) -> None:
        self._devices, self._attempt = devices, attempt
        self._known: dict[Counts, Trial] = {}

    def at(self, counts: Counts) -> Trial:
        """The trial of one split."""
        if counts not in self._known:
            self._known[counts] = self._attempt(counts)
        return self._known[counts]

    def between_two(self, offloaded: int) -> Split:
        """More layers on the first leave it less room and the second more: the best is where the two cross."""

        def crossed(first: int) -> bool:
            left = self.left((first, offloaded - first))
            return left[0] < left[1]

        low, high = 1, offloaded - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if crossed(middle) else (middle + 1, high)
        near = range(max(1, low - 2), min(offloaded - 1, low + 1) + 1)
        return self._best((first, offloaded - first) for first in near)

    def among_many(self, start: Counts, model: PlannedModel) -> Split:
        """Fill to one level with what is known of each unit, correct by what the plan says, then move single units."""
        counts = start
        costs = _unit_costs(model, self.at(start), sum(start))
        for _ in range(_ROUNDS):
            filled = _filled(costs, counts, self.left(counts), self._required(counts))
            if filled in self._known:
                break
            counts = filled
            self.at(counts)
        best = self._best(self._known)
        for _ in range(_STEPS):
            left = self.left(best.counts)
            better = self._best((best.counts, *_neighbours(best.counts, left.index(min(left)))))
            if better.counts == best.counts:
                break
            best = better
        return best

    def _best(self, candidates: Iterable[Counts]) -> Split:
        counts = max(candidates, key=lambda each: self.at(each).room_bytes)
        return Split(counts, self.at(counts))

    def left(self, counts: Counts) -> list[int]:
        """The room of each device."""
        trial = self.at(counts)
        budgets = {budget.name: budget for budget in trial.planned.devices}
        return [budgets[name].headroom_bytes for name in self._devices]

    def _required(self, counts: Counts) -> list[int]:
        budgets = {budget.name: budget for budget in self.at(counts).planned.devices}
        return [budgets[name].required_bytes for name in self._devices]


def _even(offloaded: int, count: int) -> Counts:
    return tuple(offloaded * (index + 1) // count - offloaded * index // count for index in range(count))


def _unit_costs(model: PlannedModel, trial: Trial, offloaded: int) -> list[int]:
    """About what each offloaded unit takes: its weights without experts that are on the host, its part of the cache."""
    layers, placement = model.shape.layers, trial.profile.placement
    moved = len(layers) if placement.cpu_moe_layers == "all" else placement.cpu_moe_layers
    widths = [layer.k_width + layer.v_width for layer in layers]
    cache = sum(budget.terms["kv_cache"] + budget.terms["recurrent_state"] for budget in trial.planned.devices)
    each = cache / max(1, sum(widths))
    costs = [
        model.table.unit_bytes[unit]
        - (model.table.expert_bytes[unit] if unit < moved else 0)
        + round(each * widths[unit])
        for unit in range(len(layers))
    ]
    return [*costs, model.table.unit_bytes[len(layers)]][-offloaded:]


def _filled(costs: Sequence[int], counts: Counts, left: Sequence[int], required: Sequence[int]) -> Counts:
    """Fill device after device so that the least room is the most; what is not layers stays as it was found."""
    ends = [0, *accumulate(counts)]
    sums = [0, *accumulate(costs)]
    beside = [need - (sums[end] - sums[start]) for need, (start, end) in zip(required, pairwise(ends), strict=True)]
    room = [have + need - more for have, need, more in zip(left, required, beside, strict=True)]
    low, high = min(room) - sums[-1], max(room)
    best = counts
    while low < high:
        middle = (low + high + 1) // 2
        filled = _greedy(sums, room, middle)
        if filled is None:
            high = middle - 1
        else:
            low, best = middle, filled
    return _levelled(sums, room, best)


def _greedy(sums: Sequence[int], room: Sequence[int], spare: int) -> Counts | None:
    """As many units on each device as leave `spare` bytes, and one for each at least; None where some are left over."""
    start, last, counts = 0, len(sums) - 1, []
    for index, have in enumerate(room):
        after = len(room) - 1 - index
        end = min(bisect_right(sums, sums[start] + have - spare) - 1, last - after)
        if end <= start:
            return None
        counts.append(end - start)
        start = end
    return tuple(counts) if start == last else None


def _levelled(sums: Sequence[int], room: Sequence[int], counts: Counts) -> Counts:
    """Each border where the devices beside it have most room, until none moves: what is left over is spread."""
    ends = [0, *accumulate(counts)]
    for _ in range(_LEVELLINGS):
        before = list(ends)
        for at in range(1, len(room)):
            start, end = ends[at - 1], ends[at + 1]
            even = (room[at - 1] - room[at] + sums[start] + sums[end]) // 2
            middle = bisect_right(sums, even) - 1
            near = [min(max(border, start + 1), end - 1) for border in (middle, middle + 1, ends[at])]
            ends[at] = max(
                near,
                key=lambda border, start=start, end=end, at=at: min(  # type: ignore[misc]
                    room[at - 1] - sums[border] + sums[start], room[at] - sums[end] + sums[border]
                ),
            )
        if ends == before:
            break
    return tuple(end - start for start, end in pairwise(ends))


def _neighbours(counts: Counts, fullest: int) -> list[Counts]:
    """One unit less on the fullest device, given to each other one. Those between move their borders."""
    moves = []
    if counts[fullest] > 1:
        for other in range(len(counts)):
            if other != fullest and abs(other - fullest) <= 2:
                moved = list(counts)
                moved[fullest] -= 1
                moved[other] += 1
                moves.append(tuple(moved))
    return moves
