"""Where a launch puts target and draft: the facts that several rules ask for."""

from dataclasses import dataclass

from app.inventory.models import ModelFile, ModelKind
from app.placement.case import LaunchCase
from app.placement.resolve import NO_DEVICE, layout_of, resolve

# These take what they lack from the target; other files bring all they need (tied embeddings are their head).
_BORROWING_KINDS = (ModelKind.DFLASH, ModelKind.DSPARK, ModelKind.EAGLE3)


@dataclass(frozen=True, slots=True)
class Places:
    """`devices` are those that the target's layers are divided over, in order; empty where all stay on the host.

    `output` is the device of the output layer, None on the host. With `is_shared` (split mode `tensor`) every device
    holds a part of each layer instead. `draft_device` is where the draft model was put, None on the host and where no
    draft model is loaded; how many of its layers really go there is told by `has_draft_layers_on_device` (any) and
    `is_draft_whole` (all).
    """

    devices: tuple[str, ...]
    output: str | None
    is_shared: bool
    has_draft: bool
    draft_device: str | None
    has_draft_layers_on_device: bool
    is_draft_whole: bool

    @property
    def is_all_on_host(self) -> bool:
        """Nothing of this launch is on a device."""
        return not self.devices and not self.has_draft_layers_on_device


def places_of(case: LaunchCase) -> Places:
    """Follow the profile, and what resolving it decided, to the devices."""
    resolved = resolve(case)
    layout = layout_of(case, resolved.devices)
    device = None if resolved.draft_device == NO_DEVICE else resolved.draft_device
    layers = resolved.draft_gpu_layers
    units = case.draft.block_count + 1 if case.draft else 1
    return Places(
        devices=layout.devices if layout.used else (),
        output=None if layout.output is None else layout.devices[layout.output],
        is_shared=layout.is_shared,
        has_draft=resolved.draft_device is not None,
        draft_device=device,
        has_draft_layers_on_device=device is not None and layers != 0,
        is_draft_whole=device is not None and not (isinstance(layers, int) and layers < units),
    )


def borrows_from_target(draft: ModelFile) -> bool:
    """Whether it computes with the target's embeddings or output tensor, and so must sit beside them."""
    return draft.kind in _BORROWING_KINDS and not (draft.has_own_embeddings and draft.has_own_head)
