"""Rules on split mode `tensor`, which divides every matrix over all devices. Without any device they rest."""

from app import findings
from app.findings import Finding, Fix
from app.placement.cache_types import QUANTISED_TYPES
from app.placement.case import LaunchCase
from app.placement.places import borrows_from_target, places_of
from app.placement.resolve import resolve
from app.speculative.parameters import Method

# What llama.cpp build 11434 refuses by name (llm_arch_supports_sm_tensor). Not on this list is not the same as
# working: some abort later on shapes that cannot be divided, which no header tells.
_REFUSED = frozenset(
    "bailingmoe3 bitnet deepseek2 deepseek32 dots3note falcon-h1 gemma3n glm-dsa glm5-next granitehybrid grok hy_v4 "
    "jamba kimi-k3 kimi-linear mamba mamba2 minicpm3 minimax-01 minimax-m2 minimax-m3 mistral4 mpt nemotron_h "
    "nemotron_h_moe olmo2 olmoe plamo2 qwen3tts t5".split()
)
_BY_LAYER = Fix("Divide by layers", {"placement": {"split_mode": "layer"}})


def tensor_mode_architecture(case: LaunchCase) -> Finding | None:
    """The engine exits where it cannot divide the matrices of an architecture."""
    if not _divides_tensors(case) or case.target is None or case.target.architecture not in _REFUSED:
        return None
    return findings.error(
        "tensor-mode-architecture",
        f"llama.cpp has no split mode tensor for the architecture {case.target.architecture}: it would exit while "
        "loading.",
        expected="split_mode layer",
        observed=f"tensor, architecture {case.target.architecture}",
        evidence="the list in llama.cpp build 11434; other builds may know more",
        fixes=[_BY_LAYER],
    )


def tensor_mode_unproven(case: LaunchCase) -> Finding | None:
    """The engine measures no launch in this mode beforehand, and aborts on shapes that cannot be divided."""
    if not _divides_tensors(case) or case.target is None:
        return None
    rare = "experts" if case.target.expert_count else ""
    overridden = "override_tensor" if case.profile.placement.override_tensor else ""
    seen = " and ".join(part for part in (rare, overridden) if part)
    return findings.warning(
        "tensor-mode-unproven",
        "Split mode tensor cannot be confirmed before the launch: the engine does not measure it, and aborts on what "
        f"it cannot divide{f' (seen with {seen})' if seen else ''}.",
        expected="a mode that the engine measures",
        observed="tensor",
        evidence="llama.cpp build 11434",
        fixes=[_BY_LAYER],
    )


def tensor_mode_draft(case: LaunchCase) -> Finding | None:
    """Block drafters, and drafters that reach into the divided target, abort; on the host no draft loads at all."""
    if not _divides_tensors(case):
        return None
    places = places_of(case)
    method = case.profile.speculation.method
    if not places.has_draft:
        return None
    if places.draft_device is None:
        why = "a draft on the host inherits the mode, which needs a device"
    elif method in (Method.DFLASH, Method.DSPARK):
        why = f"method {method} does not work with a target that is divided that way"
    elif method is Method.MTP:
        why = "MTP heads on a device of their own do not work with it"
    elif case.draft is not None and borrows_from_target(case.draft):
        why = f"{case.draft.path.name} computes with the target's output tensor, which no single device holds"
    else:
        return None
    return findings.error(
        "tensor-mode-draft",
        f"Split mode tensor and this draft exclude each other: {why}.",
        expected="split_mode layer, or another drafter",
        observed=f"tensor, method {method}, the draft on {places.draft_device or 'the host'}",
        evidence="llama.cpp build 11434",
        fixes=[_BY_LAYER],
    )


def tensor_mode_attention(case: LaunchCase) -> Finding | None:
    """Mode `tensor` needs flash attention; of a quantised cache documents and code say different things."""
    context = case.profile.context
    if not _divides_tensors(case):
        return None
    if context.flash_attention == "off":
        return findings.error(
            "tensor-mode-attention",
            "Split mode tensor needs flash attention, and the profile turns it off: the engine would exit while "
            "loading.",
            expected="flash_attention on",
            observed="off",
            evidence="llama.cpp build 11434: `SPLIT_MODE_TENSOR requires flash_attn to be enabled`",
            fixes=[Fix("Turn it on", {"context": {"flash_attention": "on"}}), _BY_LAYER],
        )
    quantised = [name for name in (context.k_type, context.v_type) if name in QUANTISED_TYPES]
    if not quantised:
        return None
    return findings.warning(
        "tensor-mode-attention",
        f"The KV cache is quantised ({', '.join(dict.fromkeys(quantised))}) under split mode tensor: llama.cpp's "
        "documents exclude it and its code takes it, so whether it works on these devices is not known.",
        expected="f16",
        observed=f"K {context.k_type}, V {context.v_type}",
        evidence="llama.cpp build 11434 ran such a launch on remote CPU devices; GPUs were not tried",
        fixes=[Fix("Keep the cache in f16", {"context": {"k_type": "f16", "v_type": "f16"}}), _BY_LAYER],
    )


def _divides_tensors(case: LaunchCase) -> bool:
    return case.profile.placement.split_mode == "tensor" and bool(resolve(case).devices)


RULES = (tensor_mode_architecture, tensor_mode_unproven, tensor_mode_draft, tensor_mode_attention)
