"""What a layout is, in one line for people."""

from collections.abc import Sequence

from app.placement.amounts import counted
from app.placement.case import LaunchCase
from app.placement.methods import UsableMethod
from app.placement.trials import Trial


class LayoutText:
    """The layouts of one case: a target of `unit_count` units, and a context of so many tokens wished for."""

    def __init__(self, case: LaunchCase, unit_count: int, wished_tokens: int) -> None:
        self._case, self._units, self._wish = case, unit_count, wished_tokens

    def layout(self, method: UsableMethod, trial: Trial) -> str:
        """A layout on devices: where everything is, how it drafts, the context."""
        placement, names = trial.profile.placement, self._names(trial)
        parts = [f"on {names[0]}"]
        if placement.tensor_split is not None:
            shares = ",".join(f"{share:g}" for share in placement.tensor_split)
            parts = [f"divided {shares} over {', '.join(names)}"]
            if method.has_draft_model:
                parts.append(f"the draft beside the output layer on {names[-1]}")
        if placement.cpu_moe_layers:
            parts.append(f"the experts of {_layers(placement.cpu_moe_layers)} on the host")
        elif isinstance(placement.gpu_layers, int):
            parts.append(f"{self._units - placement.gpu_layers} of {self._units} layers on the host")
        whole = "" if placement.cpu_moe_layers or placement.gpu_layers != "all" else "everything "
        text = f"{whole}{', '.join(parts)}: {method.text}, {self._context(trial)}"
        return f"{text[0].upper()}{text[1:]}"

    def on_host(self, method: UsableMethod, trial: Trial) -> str:
        """A layout without any device."""
        return f"All on the host, which is slow: {method.text}, {self._context(trial)}"

    def _names(self, trial: Trial) -> Sequence[str]:
        placement = trial.profile.placement
        names = placement.devices or self._case.machine.device_names
        return names[placement.main_gpu :][:1] if placement.split_mode == "none" else names

    def _context(self, trial: Trial) -> str:
        context = trial.profile.context
        text = f"a context of {context.size} tokens"
        if context.size is not None and context.size < self._wish:
            text += f" (not {self._wish})"
        is_packed = context.k_type != self._case.profile.context.k_type
        return f"{text}, the KV cache in {context.k_type}" if is_packed else text


def _layers(count: int | str) -> str:
    return counted(count, "layer") if isinstance(count, int) else f"{count} layers"
