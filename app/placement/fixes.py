"""What would make a launch fit its devices: changes of the profile, each planned before it is offered.

They come ranked by what they cost the user. What only helps together is tried only where nothing helps alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.findings import Fix
from app.placement.amounts import counted, mib
from app.placement.assembly import PlannedModel, planned_model
from app.placement.cache_types import packed_cache
from app.placement.draft_precision import saved_bytes
from app.placement.layers import gpu_layer_count
from app.placement.resolve import resolve
from app.placement.splits import Counts, Split, best_split, split_patch
from app.placement.trials import Patch, Trial, Trials, case_with, joined, largest, smallest
from app.speculative.parameters import Method

_CONTEXT_STEP_TOKENS: Final = 1024
_MICRO_BATCHES: Final = (256, 128)
_WITHOUT: Final[Patch] = {"speculation": {"method": "none", "draft": None}}
_WITH_MTP: Final[Patch] = {"speculation": {"method": "mtp", "draft": None}}


class DeviceFixes:
    """The search for one launch that does not fit. `device` is where bytes are to be freed: the busiest one."""

    def __init__(self, trials: Trials, device: str) -> None:
        self._trials, self._device = trials, device
        self._case, self._profile = trials.case, trials.case.profile
        self._target: PlannedModel | None = None

    def ranked(self) -> list[Fix]:
        """Every change that fits, the cheapest first."""
        return [*self._offered(self._buffers_give()), *self._gentle_or_not(), *self._drafter()]

    def keeping_the_draft(self) -> list[Fix]:
        """Those that leave drafter and method as they are."""
        return self._gentle_or_not()

    def split(self, patch: Patch | None = None, near: Counts | None = None) -> Split | None:
        """The best split beside another change; None where layers are not divided."""
        if self._case.target is None:
            return None
        profile = self._trials.profile(patch or {})
        devices = resolve(case_with(self._case, profile)).devices
        if profile.placement.split_mode != "layer" or len(devices) < 2:
            return None
        return best_split(
            self.target,
            devices,
            lambda counts: self._trials.of(joined(patch or {}, split_patch(counts))),
            gpu_layer_count(profile.placement.gpu_layers, self.target.shape.unit_count),
            near,
        )

    def moved_beside(self, more: Patch) -> tuple[int, Trial, str] | None:
        """The fewest layers' experts on the host with which it fits, the trial, and how layers are divided for it."""
        target, moved = self._case.target, self._profile.placement.cpu_moe_layers
        if target is None or moved == "all":
            return None

        def with_experts(count: int) -> Trial:
            return self._trials.of(joined(more, _experts(count)))

        if self.split(more) is None:
            count = smallest(moved + 1, target.block_count, lambda count: with_experts(count).fits)
            return None if count is None else (count, with_experts(count), "")
        both = self.experts_and_split(moved + 1, target.block_count, more)
        return None if both is None else (both[0], both[1].trial, f", the layers divided {both[1].text}")

    @property
    def target(self) -> PlannedModel:
        """The target's header as plans read it."""
        if self._target is None:
            assert self._case.target is not None  # noqa: S101 - callers ask for it first
            self._target = planned_model(self._case.target)
        return self._target

    def _gentle_or_not(self) -> list[Fix]:
        """What changes context, cache types and split; together where nothing helps alone. Then what makes it slow."""
        gentle = list(self._offered(self._context_gives())) or list(self._offered(self._together()))
        slow = self._experts_give() if self._has_experts else self._layers_give()
        return [*gentle, *self._offered(slow)] or list(self._offered(self._all_together()))

    def _drafter(self) -> list[Fix]:
        return [*self._precision(), *self._offered(self._drafter_gives())]

    def _offered(self, found: Iterator[tuple[str, Trial]]) -> Iterator[Fix]:
        """Those that fit and break no rule."""
        for text, trial in found:
            if trial.fits and not self._trials.breaks_a_rule(trial.profile):
                yield Fix(text, trial.patch, max(0, self._freed(trial)))

    def _freed(self, trial: Trial) -> int:
        before, after = (planned.device(self._device) for planned in (self._trials.planned, trial.planned))
        return (before.required_bytes if before else 0) - (after.required_bytes if after else 0)

    def _buffers_give(self) -> Iterator[tuple[str, Trial]]:
        """Fewer draft tokens (kept states), smaller micro-batches (logits, masks)."""
        of, speculation = self._trials.of, self._profile.speculation
        if speculation.method is not Method.NONE and not speculation.method.is_ngram:
            fewer = largest(1, speculation.draft_tokens_max - 1, lambda count: of(_draft_tokens(count)).fits)
            if fewer is not None:
                yield f"Draft at most {counted(fewer, 'token')}", of(_draft_tokens(fewer))
        for size in _MICRO_BATCHES:
            if size < self._profile.context.ubatch_size:
                trial = of({"context": {"ubatch_size": size}})
                if trial.fits:
                    yield f"Work on {size} tokens at a time, which makes prompts slower", trial
                    return

    def _context_gives(self) -> Iterator[tuple[str, Trial]]:
        """Context, cache types, split, each alone."""
        yield from self._smaller_context({})
        if (packed := packed_cache(self._profile)) is not None:
            yield "Keep the KV cache in q8_0", self._trials.of(packed)
        if (split := self.split()) is not None:
            yield f"Divide the layers {split.text}", split.trial
        if (wider := self._wider()) is not None and (split := self.split(wider)) is not None:
            names = ", ".join(wider["placement"]["devices"])
            yield f"Divide the layers {split.text} over {names}", split.trial

    def _wider(self) -> Patch | None:
        """Every device with memory of its own, where the launch uses only some; the drafter goes with the output."""
        names = [device.name for device in self._case.machine.devices if not device.integrated]
        placement, draft = self._profile.placement, self._profile.speculation.draft
        used = resolve(self._case).devices[: 1 if placement.split_mode == "none" else None]
        if not used or not set(used) < set(names) or placement.split_mode not in ("none", "layer"):
            return None
        patch: dict[str, Any] = {"placement": {"devices": names, "split_mode": "layer", "main_gpu": 0}}
        if draft is not None and draft.device is not None:
            patch["speculation"] = {"draft": {"device": names[-1]}}
        return patch

    @property
    def _has_experts(self) -> bool:
        return self._case.target is not None and self._case.target.expert_count > 0

    def _smaller_context(self, more: Patch, how: str = "") -> Iterator[tuple[str, Trial]]:
        context, tokens = self._profile.context, resolve(self._case).context_size
        step = _CONTEXT_STEP_TOKENS * (1 if context.unified_kv else context.slots)

        def with_steps(steps: int) -> Trial:
            return self._trials.of(joined(more, {"context": {"size": steps * step}}))

        steps = largest(1, (tokens - 1) // step, lambda steps: with_steps(steps).fits)
        if steps is not None:
            yield f"A context of {steps * step} tokens{how}", with_steps(steps)

    def _experts_give(self) -> Iterator[tuple[str, Trial]]:
        """The fewest layers' experts on the host with which it fits: under this split, and under the best one."""
        target, layers = self._case.target, self._profile.placement.cpu_moe_layers
        if target is None or layers == "all":
            return
        first, last = int(layers) + 1, target.block_count
        alone = smallest(first, last, lambda count: self._trials.of(_experts(count)).fits)
        if alone is not None:
            yield _experts_text(alone), self._trials.of(_experts(alone))
        if (both := self.experts_and_split(first, last if alone is None else alone - 1)) is not None:
            count, split = both
            yield f"{_experts_text(count)}, and divide the layers {split.text}", split.trial

    def experts_and_split(self, first: int, last: int, more: Patch | None = None) -> tuple[int, Split] | None:
        """The fewest layers' experts on the host with which some split fits, and the best split for them."""
        near: Counts | None = None

        def fits(count: int) -> bool:
            nonlocal near
            split = self.split(joined(more or {}, _experts(count)), near)
            near = split.counts if split else None
            return split is not None and split.trial.fits

        if self.split(more) is None or (count := smallest(first, last, fits)) is None:
            return None
        split = self.split(joined(more or {}, _experts(count)), near)
        return None if split is None else (count, split)

    def _layers_give(self) -> Iterator[tuple[str, Trial]]:
        """A dense model has only whole layers to give; the drafter stays where the output is."""
        if self._case.target is None:
            return
        units = self._case.target.block_count + 1
        layers = self._profile.placement.gpu_layers
        most = min(layers, units) if isinstance(layers, int) else units

        def with_layers(count: int) -> Trial:
            return self._trials.of({"placement": {"gpu_layers": count}})

        if (count := largest(1, most - 1, lambda count: with_layers(count).fits)) is not None:
            yield f"Keep {units - count} of {units} layers on the host, which is slow", with_layers(count)

    def _precision(self) -> Iterator[Fix]:
        """No patch: it takes another file."""
        freed = saved_bytes(self._trials.case, self._trials.planned, self._device)
        over = [name for name in self._over() if name != self._device]
        budget = self._trials.planned.device(self._device)
        if not freed or over or budget is None or freed < -budget.headroom_bytes:
            return
        name = self._case.draft.path.name if self._case.draft else "the draft"
        yield Fix(f"Look for {name} in Q8_0: it takes {mib(freed)} less there", {}, freed)

    def _over(self) -> list[str]:
        return [budget.name for budget in self._trials.planned.devices if not budget.fits]

    def _drafter_gives(self) -> Iterator[tuple[str, Trial]]:
        """MTP heads need no second model; without any drafter nothing is needed."""
        speculation, target = self._profile.speculation, self._case.target
        if speculation.method.takes_draft_model and speculation.draft is not None:
            if target is not None and target.has_nextn_tensors:
                yield "Draft with the target's own MTP heads instead of a draft model", self._trials.of(_WITH_MTP)
            yield "Do without speculation", self._trials.of(_WITHOUT)
        elif speculation.method is Method.MTP:
            yield "Do without speculation", self._trials.of(_WITHOUT)

    def _together(self) -> Iterator[tuple[str, Trial]]:
        """A cache in q8_0, the best split, a smaller context: as many of them as it takes."""
        packed, text = packed_cache(self._profile) or {}, ", the KV cache in q8_0"
        if packed:
            yield from self._smaller_context(packed, text)
        split = self.split(packed)
        if split is None:
            return
        how = f", the layers divided {split.text}{text if packed else ''}"
        if split.trial.fits:
            yield f"The context as it is{how}", split.trial
        else:
            yield from self._smaller_context(joined(packed, split_patch(split.counts)), how)

    def _all_together(self) -> Iterator[tuple[str, Trial]]:
        """Where experts alone do not do it."""
        if self._has_experts:
            yield from self._experts_with(packed_cache(self._profile) or {})

    def _experts_with(self, packed: Mapping[str, Any]) -> Iterator[tuple[str, Trial]]:
        """Experts give way first, then the context: halved until some split holds it."""
        tokens = size = resolve(self._case).context_size
        step = _CONTEXT_STEP_TOKENS * self._profile.context.slots
        while size >= step:
            more = joined(packed, {"context": {"size": size}}) if size < tokens else packed
            if (found := self.moved_beside(more)) is not None:
                count, trial, how = found
                text = f"{_experts_text(count)}{how}, a context of {size} tokens"
                yield text + (", the KV cache in q8_0" if packed else ""), trial
                return
            size = size // 2 // step * step


def _draft_tokens(count: int) -> Patch:
    return {"speculation": {"draft_tokens_max": count}}


def _experts(count: int) -> Patch:
    return {"placement": {"cpu_moe_layers": count}}


def _experts_text(count: int) -> str:
    return f"Keep the experts of {counted(count, 'layer')} on the host"
