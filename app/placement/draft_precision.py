"""What a draft model would save in Q8_0. Pure."""

from typing import Final

from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase

FULL_PRECISION: Final = frozenset({"F32", "F16", "BF16"})
_BLOCK_VALUES: Final = 32
_BLOCK_BYTES: Final = 34


def is_full_precision(case: LaunchCase) -> bool:
    """Whether a draft model is loaded that is mostly of 16 or 32 bits."""
    takes = case.profile.speculation.method.takes_draft_model and case.profile.speculation.draft is not None
    return takes and case.draft is not None and case.draft.largest_type in FULL_PRECISION


def saved_bytes(case: LaunchCase, planned: PlacementPlan, device: str) -> int:
    """Bytes of the draft's weights on one device that the same draft in Q8_0 would not take; 0 where it is not there.

    Matrices become blocks of 32 values in 34 bytes; vectors stay as they are.
    """
    budget = planned.device(device)
    if budget is None or case.draft is None or not is_full_precision(case):
        return 0
    now = packed = 0
    for tensor in case.draft.tensors.values():
        now += tensor.n_bytes
        rows, width = 1, tensor.shape[0] if tensor.shape else 0
        for length in tensor.shape[1:]:
            rows *= length
        can = tensor.type_name in FULL_PRECISION and len(tensor.shape) > 1 and width % _BLOCK_VALUES == 0
        packed += rows * width // _BLOCK_VALUES * _BLOCK_BYTES if can else tensor.n_bytes
    return budget.terms["draft_weights"] * (now - packed) // now if now else 0
