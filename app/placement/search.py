"""LayoutSearch: the layouts of one method on one machine, from everything on one device down to the host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from app.placement.amounts import mib
from app.placement.assembly import planned_model
from app.placement.cache_types import packed_cache
from app.placement.layout_text import LayoutText
from app.placement.methods import UsableMethod
from app.placement.splits import Counts, best_split, split_patch
from app.placement.trials import Patch, Trial, Trials, joined, largest, smallest
from app.speculative.parameters import Method

_WISHED_TOKENS: Final = 32_768
_STEP_TOKENS: Final = 1024
# A context below such a part of the wish is not offered: on devices, and with layers or experts on the host.
_SHORT, _SHORTEST = 2, 8
_MORE_SLOTS: Final = 4
_NGRAM: Final = UsableMethod(
    Method.NGRAM_MOD,
    {"method": "ngram-mod", "ngram": {"match_length": 24, "draft_length_min": 8, "draft_length_max": 32}},
)


class Tier(IntEnum):
    """Layouts in the order in which they are preferred."""

    ONE_DEVICE = 0
    MORE_DEVICES = 1
    SHORT = 2
    HYBRID = 3
    HYBRID_SHORT = 4
    HOST = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """One trial that fits. `place` is the method's place among those of the files; a variant answers another wish."""

    tier: Tier
    place: int
    trial: Trial
    reason: str
    is_variant: bool = False

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """A drafter is given up after everything else; weights that are read again and again come last."""
        left = self.trial.planned.host.headroom_bytes
        return (left is not None and left < 0, self.is_variant, self.place, self.tier)

    def because(self, more: str) -> "Candidate":
        """The same with more said."""
        return replace(self, reason=self.reason + more)


class LayoutSearch:
    """The search for one case: its profile says context, slots and cache types that are wished for."""

    def __init__(self, trials: Trials) -> None:
        case = trials.case
        assert case.target is not None  # noqa: S101 - callers ask for it first
        self._trials, self._target = trials, case.target
        self._model = planned_model(case.target)
        context = case.profile.context
        self._per_slot = 1 if context.unified_kv else context.slots
        trained = case.target.context_length_trained or _WISHED_TOKENS
        self._wish = context.size or min(_WISHED_TOKENS, trained) * self._per_slot
        self._room = {budget.name: budget.headroom_bytes + budget.required_bytes for budget in trials.planned.devices}
        self._takes_devices = case.engine.takes_devices
        self._near: dict[tuple[str, ...], Counts] = {}
        self._text = LayoutText(case, self._model.shape.unit_count, self._wish)

    def layouts(self, method: UsableMethod, place: int) -> Iterator[Candidate]:
        """What fits, the preferred first: on devices with the whole context, else a shorter one, else hybrid."""
        own, packed = {"context": {"size": self._wish}}, self._packed(method)
        found = False
        for tier, sets in ((Tier.ONE_DEVICE, self._singles()), (Tier.MORE_DEVICES, self._several())):
            for more in (own, packed):
                trial = None if more is None else self._first_that_fits(method, sets, more)
                if trial is not None:
                    found = True
                    yield Candidate(tier, place, trial, self._reason(method, trial))
                    break
        if found:
            return
        least = packed or own
        for devices in (*self._singles(), *self._several()[-1:]):
            if (trial := self._longest(method, devices, least, _SHORT)) is not None:
                yield Candidate(Tier.SHORT, place, trial, self._reason(method, trial))
                break
        yield from self._hybrids(method, place, own, least)

    def more_slots(self, candidate: Candidate) -> Iterator[Candidate]:
        """The same layout with room for several requests at once, where it has it."""
        profile = candidate.trial.profile
        if profile.context.slots > 1 or candidate.tier > Tier.MORE_DEVICES or profile.context.size is None:
            return
        size = profile.context.size * _MORE_SLOTS
        patch = joined(candidate.trial.patch, {"context": {"slots": _MORE_SLOTS, "size": size}})
        trial = self._trials.of(patch)
        if trial.fits:
            text = f"{_MORE_SLOTS} slots of {profile.context.size} tokens for requests at the same time; "
            yield Candidate(candidate.tier, candidate.place, trial, text + _lowered(candidate.reason), is_variant=True)

    def from_repeated_text(self, candidate: Candidate) -> Iterator[Candidate]:
        """The same layout with drafts that need no model and no memory; for what is all on devices."""
        if candidate.tier > Tier.MORE_DEVICES or candidate.trial.profile.speculation.method is not Method.NONE:
            return
        trial = self._trials.of(joined(candidate.trial.patch, _NGRAM.patch(None)))
        if trial.fits:
            reason = "For answers that repeat their input: " + _lowered(self._reason(_NGRAM, trial))
            yield Candidate(candidate.tier, candidate.place, trial, reason, is_variant=True)

    def on_the_host(self, method: UsableMethod, place: int) -> Iterator[Candidate]:
        """Without any device; a context as long as the host holds."""
        patch = self._host_patch(method)

        def with_steps(steps: int) -> Trial:
            return self._trials.of(joined(patch, {"context": {"size": steps * self._step}}))

        whole = self._trials.of(joined(patch, {"context": {"size": self._wish}}))
        if not whole.fits:
            steps = largest(1, self._wish // self._step, lambda steps: with_steps(steps).fits)
            if steps is None:
                return
            whole = with_steps(steps)
        how = "" if method.method is Method.NONE else "; measure whether it is faster than without"
        yield Candidate(Tier.HOST, place, whole, self._text.on_host(method, whole) + how)

    def nearest(self, method: UsableMethod, place: int) -> Candidate | None:
        """Of the smallest layouts that are tried, the one that lacks least; None where none can be planned."""
        most = self._wish // self._step
        bare: Patch = {"context": {"size": max(1, most // _SHORTEST) * self._step, "prompt_cache_bytes": 0}}
        least = joined(joined(self._packed(method) or {}, self._everything_away()), bare)
        on_devices = [
            self._on(method, devices, least, moved=True) for devices in (*self._several()[-1:], *self._singles())
        ]
        found = [
            Candidate(Tier.HYBRID_SHORT, place, trial, self._text.layout(method, trial))
            for trial in on_devices
            if trial is not None
        ]
        if method.method is Method.NONE or not self._trials.case.machine.devices:
            size = {"context": {"size": self._step, "prompt_cache_bytes": 0}}
            trial = self._trials.of(joined(self._host_patch(method), size))
            found.append(Candidate(Tier.HOST, place, trial, self._text.on_host(method, trial)))
        return min(found, key=lambda candidate: candidate.trial.lacking_bytes, default=None)

    @property
    def _step(self) -> int:
        return min(_STEP_TOKENS * self._per_slot, self._wish)

    def _singles(self) -> list[tuple[str, ...]]:
        """The device with most room, and the same of those that share the host's memory."""
        return [group[:1] for group in self._by_room() if group]

    def _several(self) -> list[tuple[str, ...]]:
        """The two devices with most room, the three, and so on, in the engine's order."""
        apart, _ = self._by_room()
        order = self._trials.case.machine.device_names
        fewest = 2 if self._takes_devices else len(order)
        return [tuple(sorted(apart[:count], key=order.index)) for count in range(max(2, fewest), len(apart) + 1)]

    def _by_room(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Devices with memory of their own, those of this machine first, and integrated ones."""
        devices = sorted(
            self._trials.case.machine.devices,
            key=lambda device: (device.name.startswith("RPC"), -self._room[device.name]),
        )
        return (
            tuple(device.name for device in devices if not device.integrated),
            tuple(device.name for device in devices if device.integrated),
        )

    def _first_that_fits(self, method: UsableMethod, sets: Sequence[tuple[str, ...]], more: Patch) -> Trial | None:
        for devices in sets:
            trial = self._on(method, devices, more)
            if trial is not None and trial.fits:
                return trial
        return None

    def _on(self, method: UsableMethod, devices: tuple[str, ...], more: Patch, *, moved: bool = False) -> Trial | None:
        """The best split of one launch; None where it cannot fit these devices together, or they cannot be divided."""
        base = joined(method.patch(devices[-1], offloaded=moved), {"placement": self._placement(devices)})
        patch = joined(base, more)
        if len(devices) == 1:
            return self._trials.of(patch)
        profile = self._trials.profile(patch)
        units = self._model.shape.unit_count
        layers = profile.placement.gpu_layers
        offloaded = min(layers, units) if isinstance(layers, int) else units

        def attempt(counts: Counts) -> Trial:
            return self._trials.of(joined(patch, split_patch(counts)))

        split = best_split(self._model, devices, attempt, offloaded, self._near.get(devices), need_room=True)
        if split is None:
            return None
        self._near[devices] = split.counts
        return split.trial

    def _longest(
        self, method: UsableMethod, devices: tuple[str, ...], more: Patch, share: int, *, moved: bool = False
    ) -> Trial | None:
        """The longest context that fits, if it is one part in `share` of the wish at least."""

        def with_steps(steps: int) -> Trial | None:
            size = {"context": {"size": steps * self._step}}
            return self._on(method, devices, joined(more, size), moved=moved)

        def fits(steps: int) -> bool:
            trial = with_steps(steps)
            return trial is not None and trial.fits

        most = self._wish // self._step
        steps = largest(max(1, most // share), most, fits)
        return None if steps is None else with_steps(steps)

    def _hybrids(self, method: UsableMethod, place: int, own: Patch, least: Patch) -> Iterator[Candidate]:
        """On all devices, else on one, the fewest experts (of a dense model: layers) on the host."""
        sets = [*self._several()[-1:], *self._singles()]
        for devices in sets:
            for more in (own, least):
                trial = self._giving_way(method, devices, more)
                if trial is not None:
                    yield Candidate(Tier.HYBRID, place, trial, self._reason(method, trial))
                    return
        for devices in sets:
            trial = self._longest(method, devices, joined(least, self._everything_away()), _SHORTEST, moved=True)
            if trial is not None:
                yield Candidate(Tier.HYBRID_SHORT, place, trial, self._reason(method, trial))
                return

    def _everything_away(self) -> Patch:
        return {"placement": {"cpu_moe_layers": "all"} if self._target.expert_count else {"gpu_layers": 1}}

    def _giving_way(self, method: UsableMethod, devices: tuple[str, ...], more: Patch) -> Trial | None:
        def with_moved(count: int) -> Trial | None:
            key = "cpu_moe_layers" if self._target.expert_count else "gpu_layers"
            return self._on(method, devices, joined(more, {"placement": {key: count}}), moved=True)

        def fits(count: int) -> bool:
            trial = with_moved(count)
            return trial is not None and trial.fits_devices

        blocks = self._target.block_count
        count = smallest(1, blocks, fits) if self._target.expert_count else largest(len(devices), blocks, fits)
        trial = None if count is None else with_moved(count)
        return trial if trial is not None and trial.fits else None

    def _placement(self, devices: Sequence[str]) -> dict[str, Any]:
        """Nothing of an earlier layout stays. An engine that takes no list of devices has one of them, or all."""
        order = self._trials.case.machine.device_names
        return {
            "devices": list(devices) if self._takes_devices else None,
            "split_mode": "layer" if len(devices) > 1 else "none",
            "tensor_split": None,
            "main_gpu": 0 if self._takes_devices or len(devices) != 1 else order.index(devices[0]),
            "gpu_layers": "all",
            "cpu_moe_layers": 0,
            "override_tensor": [],
            "fit": False,
        }

    def _host_patch(self, method: UsableMethod) -> Patch:
        devices = ["none"] if self._trials.case.machine.devices and self._takes_devices else None
        placement = {**self._placement(()), "devices": devices, "gpu_layers": 0}
        return joined(method.patch("none"), {"placement": placement})

    def _packed(self, method: UsableMethod) -> Patch | None:
        packed = packed_cache(self._trials.profile(method.patch(None)))
        return None if packed is None else joined(packed, {"context": {"size": self._wish}})

    def _reason(self, method: UsableMethod, trial: Trial) -> str:
        return f"{self._text.layout(method, trial)}; {mib(trial.room_bytes)} left on the busiest device"


def _lowered(text: str) -> str:
    return f"{text[0].lower()}{text[1:]}"
