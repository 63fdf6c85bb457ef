"""What would make a launch fit the host: a smaller prompt cache, fewer experts there, a smaller context."""

from collections.abc import Callable, Iterator

from app.findings import Fix
from app.placement.amounts import counted
from app.placement.budgets import HostBudget
from app.placement.fixes import DeviceFixes
from app.placement.resolve import resolve
from app.placement.trials import Trial, Trials, largest, smaller_prompt_cache

_CONTEXT_STEP_TOKENS = 1024


class HostFixes:
    """The search for one launch. `left` is what of the host's room must not be negative."""

    def __init__(self, trials: Trials, left: Callable[[HostBudget], int | None]) -> None:
        self._trials, self._left = trials, left
        self._case, self._profile = trials.case, trials.case.profile

    def ranked(self) -> list[Fix]:
        """Every change that fits, the cheapest first."""
        before = self._trials.planned.host.required_bytes
        return [
            Fix(text, trial.patch, max(0, before - trial.planned.host.required_bytes))
            for text, trial in (*self._cache_gives(), *self._devices_take(), *self._context_gives())
            if self._fits(trial) and not self._trials.breaks_a_rule(trial.profile)
        ]

    def _fits(self, trial: Trial) -> bool:
        """A fix for the host must not leave a device over."""
        left = self._left(trial.planned.host)
        return left is not None and left >= 0 and trial.fits_devices

    def _cache_gives(self) -> Iterator[tuple[str, Trial]]:
        left = self._left(self._trials.planned.host)
        if left is None or left >= 0:
            return
        smaller = smaller_prompt_cache(self._case, self._profile, -left)
        if smaller is not None:
            size = smaller["context"]["prompt_cache_bytes"]
            trial = self._trials.with_prompt_cache(smaller)
            yield f"A prompt cache of {size >> 20} MiB" if size else "No prompt cache", trial

    def _devices_take(self) -> Iterator[tuple[str, Trial]]:
        """Fewer layers' experts on the host, as far as devices have room under this split or the best one."""
        target, moved = self._case.target, self._profile.placement.cpu_moe_layers
        if target is None or target.expert_count == 0 or not moved:
            return
        most = target.block_count if moved == "all" else min(moved, target.block_count)

        def with_experts(count: int) -> Trial:
            patch = {"placement": {"cpu_moe_layers": count}}
            trial = self._trials.plain(patch)
            if trial.fits_devices:
                return trial
            split = DeviceFixes(self._trials, "").split(patch)
            return split.trial if split is not None else trial

        def has_host_room(count: int) -> bool:
            left = self._left(with_experts(count).planned.host)
            return left is not None and left >= 0

        if (count := largest(0, most - 1, has_host_room)) is not None:
            trial = with_experts(count)
            split = trial.patch["placement"].get("tensor_split")
            how = f", and divide the layers {','.join(map(str, split))}" if split else ""
            yield f"Keep the experts of only {counted(count, 'layer')} on the host{how}", trial

    def _context_gives(self) -> Iterator[tuple[str, Trial]]:
        context, tokens = self._profile.context, resolve(self._case).context_size
        step = _CONTEXT_STEP_TOKENS * (1 if context.unified_kv else context.slots)

        def with_steps(steps: int) -> Trial:
            return self._trials.plain({"context": {"size": steps * step}})

        steps = largest(1, (tokens - 1) // step, lambda steps: self._fits(with_steps(steps)))
        if steps is not None:
            yield f"A context of {steps * step} tokens", with_steps(steps)
