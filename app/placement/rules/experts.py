"""Rules on experts in host memory, and on speculation beside them."""

import re
from collections.abc import Mapping
from typing import Any

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile, ModelKind
from app.placement.amounts import counted
from app.placement.case import LaunchCase
from app.placement.places import places_of
from app.placement.resolve import resolve
from app.profiles.profile import CpuMoeLayers

_DRAFT_TOKENS_MAX = 8
_NO_OFFLOAD: Mapping[str, Any] = {"cpu_moe_layers": 0}
_ROUTED_EXPERTS = re.compile(r"blk\.([0-9]+)\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.")


def target_offload_not_moe(case: LaunchCase) -> Finding | None:
    """Expert offload of a model without experts moves nothing."""
    placement = case.profile.placement
    return _not_moe(case.target, placement.cpu_moe_layers, "placement.cpu_moe_layers", {"placement": _NO_OFFLOAD})


def draft_offload_not_moe(case: LaunchCase) -> Finding | None:
    """The same for the draft model."""
    draft = case.profile.speculation.draft
    if draft is None or not case.profile.speculation.method.takes_draft_model:
        return None
    patch = {"speculation": {"draft": _NO_OFFLOAD}}
    return _not_moe(case.draft, draft.cpu_moe_layers, "speculation.draft.cpu_moe_layers", patch)


def _not_moe(model: ModelFile | None, layers: CpuMoeLayers, field: str, patch: Mapping[str, Any]) -> Finding | None:
    if model is None or layers == 0 or model.expert_count > 0:
        return None
    return findings.error(
        "expert-offload-not-moe",
        f"{model.path.name} has no experts, so {field} moves nothing to the host: the launch would need the memory "
        "that it was meant to save.",
        expected="a mixture-of-experts model, or 0",
        observed=f"{layers}, architecture {model.architecture}",
        evidence="expert_count in the file's header",
        fixes=[Fix("No expert offload", patch)],
    )


def expert_offload_range(case: LaunchCase) -> Finding | None:
    """The number counts layers from the first one, leading dense ones too; more than there are is a mistake."""
    target, layers = case.target, case.profile.placement.cpu_moe_layers
    if target is None or target.expert_count == 0 or layers in ("all", 0):
        return None
    count = int(layers)
    if count > target.block_count:
        return findings.error(
            "expert-offload-range",
            f"cpu_moe_layers is {count}, and {target.path.name} has {counted(target.block_count, 'layer')}.",
            expected=f"at most {target.block_count}, or all",
            observed=str(count),
            evidence="block_count in the file's header",
            fixes=[Fix("The experts of every layer", {"placement": {"cpu_moe_layers": "all"}})],
        )
    dense = _leading_dense_layers(target)
    if dense == 0:
        return None
    return findings.info(
        "expert-offload-range",
        f"cpu_moe_layers counts layers from the first one, and the first {dense} of {target.path.name} have no "
        f"experts: {count} moves the experts of only {max(0, count - dense)}.",
        expected=f"{count + dense} to move the experts of {counted(count, 'layer')}",
        observed=f"{count}, of these {min(count, dense)} dense",
        evidence="tensor names in the file's header",
    )


def _leading_dense_layers(model: ModelFile) -> int:
    with_experts = [int(found[1]) for name in model.tensors if (found := _ROUTED_EXPERTS.match(name))]
    return min(with_experts, default=0)


def experts_on_host(case: LaunchCase) -> bool:
    """Whether experts of the target are computed on the host while other layers have a device."""
    target, placement = case.target, case.profile.placement
    if target is None or target.expert_count == 0 or not places_of(case).devices:
        return False
    dense = _leading_dense_layers(target)
    if placement.cpu_moe_layers == "all" or placement.cpu_moe_layers > dense:
        return True
    # The first layers are the ones that stay; the output counts as one more.
    if isinstance(placement.gpu_layers, int) and target.block_count + 1 - placement.gpu_layers > dense:
        return True
    return any("exps" in entry and entry.endswith("=CPU") for entry in placement.override_tensor)


def offloaded_draft_length(case: LaunchCase) -> Finding | None:
    """Each draft token can call on other experts: on the host verification grows with them."""
    speculation = case.profile.speculation
    if speculation.method.is_ngram or not speculation.methods or not experts_on_host(case):
        return None
    drafted = resolve(case).draft_tokens_max
    if drafted <= _DRAFT_TOKENS_MAX:
        return None
    return findings.warning(
        "offloaded-draft-length",
        f"Drafts of {drafted} tokens are verified by experts in host memory: the cost grows with every distinct expert "
        "that they need. The best values reported are 3 to 9.",
        expected=f"draft_tokens_max of at most {_DRAFT_TOKENS_MAX}",
        observed=str(drafted),
        evidence="speculation.draft_tokens_max, placement.cpu_moe_layers; reports from the field",
        fixes=[
            Fix("Draft 7 tokens", {"speculation": {"draft_tokens_max": 7}}),
            Fix("Draft 3 tokens, where memory bandwidth is low", {"speculation": {"draft_tokens_max": 3}}),
        ],
    )


def offloaded_draft_probability(case: LaunchCase) -> Finding | None:
    """Drafts that are never given up early are verified in full, and on the host that is dear."""
    speculation = case.profile.speculation
    has_draft = speculation.draft is not None and speculation.method.takes_draft_model
    if not has_draft or speculation.draft_probability_min > 0 or not experts_on_host(case):
        return None
    draft = case.draft
    is_unsure = draft is None or draft.kind is not ModelKind.DSPARK or draft.has_confidence_head
    advice = "" if is_unsure else " This drafter has no confidence head and takes no threshold: keep its drafts short."
    return findings.warning(
        "offloaded-draft-probability",
        "Every draft is verified to its end by experts in host memory, however unsure the drafter is: in such a case "
        f"60 to 70 % of drafts were rejected.{advice}",
        expected="draft_probability_min of about 0.6",
        observed="0",
        evidence="speculation.draft_probability_min, placement.cpu_moe_layers; a report from the field",
        fixes=[Fix("Stop where the drafter is unsure", {"speculation": {"draft_probability_min": 0.6}})]
        if is_unsure
        else (),
    )


def speculation_unmeasured(case: LaunchCase) -> Finding | None:
    """With experts on the host speculation may cost more than it gives. No case carries a tuning run's result yet."""
    methods = case.profile.speculation.methods
    if not methods or not experts_on_host(case):
        return None
    return findings.info(
        "speculation-unmeasured",
        f"Experts are in host memory, and nothing shows that {', '.join(methods)} gains anything here: it can lose "
        "even at high acceptance. Compare its tokens/s in GET /stats with those of the same profile with method none.",
        expected="a measured speed-up above 1 on this machine and build",
        observed="none",
        evidence="no tuning run is recorded",
    )


RULES = (
    target_offload_not_moe,
    draft_offload_not_moe,
    expert_offload_range,
    offloaded_draft_length,
    offloaded_draft_probability,
    speculation_unmeasured,
)
