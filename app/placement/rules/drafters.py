"""Rules on drafters: whether heads, widths and layers are those of the target, and what a block allows."""

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile, ModelKind
from app.placement.amounts import counted
from app.placement.case import LaunchCase
from app.placement.drafting import CHAINED_MTP_ARCHITECTURES, target_width
from app.placement.resolve import resolve
from app.placement.rules.files import MTP_ARCHITECTURES
from app.speculative.parameters import Method

WITHOUT_SPECULATION = Fix("Do without speculation", {"speculation": {"method": "none", "draft": None}})

_READS_HIDDEN_STATES = (Method.DFLASH, Method.DSPARK, Method.EAGLE3)
# A file of another kind is the matter of `draft-kind`.
_READING_KINDS = (ModelKind.DFLASH, ModelKind.DSPARK, ModelKind.EAGLE3)
# Architectures whose graph hands out the input of its layers, in llama.cpp build 11434 (src/models): of the others a
# drafter that reads hidden states gets nothing, and the server aborts at the first request.
_HANDS_OUT_HIDDEN_STATES = frozenset(
    "bailingmoe3 deepseek4 gemma4 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe llama llama-embed mimo2 minimax-01 "
    "minimax-m2 muse-glimmer nanbeige nemotron_h nemotron_h_moe qwen3 qwen35 qwen35moe qwen3moe qwen3next "
    "qwen4exp".split()
)
# Of these also what comes after the last layer.
_HANDS_OUT_LAST_STATE = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
_EAGLE3_LAYERS = 3


def mtp_absent_in_draft(case: LaunchCase) -> Finding | None:
    """MTP from a file of its own needs the heads there: the engine exits with `failed to create MTP context`."""
    draft = case.draft
    if case.profile.speculation.method is not Method.MTP or draft is None or draft.kind is not ModelKind.TARGET:
        return None
    if draft.nextn_layers and draft.has_nextn_tensors and draft.architecture in MTP_ARCHITECTURES:
        return None
    return findings.error(
        "mtp-absent",
        f"{draft.path.name} has no MTP heads to draft with: the server would exit while loading.",
        expected="nextn layers with their tensors, of an architecture with an MTP graph",
        observed=f"{counted(draft.nextn_layers, 'nextn layer')}, architecture {draft.architecture}",
        evidence="keys and tensor names in the file's header",
        fixes=[
            Fix("Use it as an ordinary draft model", {"speculation": {"method": "draft"}}),
            Fix("Draft with the target's own heads", {"speculation": {"draft": None}}),
        ],
    )


def mtp_heads(case: LaunchCase) -> Finding | None:
    """Most MTP graphs are written for one head; with more the engine aborts."""
    if case.profile.speculation.method is not Method.MTP:
        return None
    source = case.draft if case.profile.speculation.draft is not None else case.target
    if source is None or source.nextn_layers <= 1 or source.architecture not in MTP_ARCHITECTURES:
        return None
    if source.architecture in CHAINED_MTP_ARCHITECTURES:
        return None
    return findings.error(
        "mtp-heads",
        f"{source.path.name} has {source.nextn_layers} MTP heads, and llama.cpp takes one for the architecture "
        f"{source.architecture}: it would abort while loading.",
        expected=f"one head, or an architecture that chains them ({', '.join(sorted(CHAINED_MTP_ARCHITECTURES))})",
        observed=f"{source.nextn_layers} heads, architecture {source.architecture}",
        evidence="nextn_predict_layers in the file's header; assertions in llama.cpp build 11434",
        fixes=[WITHOUT_SPECULATION],
    )


def draft_hidden_size(case: LaunchCase) -> Finding | None:
    """A drafter is fed the target's hidden states: with another width the engine aborts, often only on a request."""
    target, draft = case.target, case.draft
    if target is None or draft is None or target.embedding_length is None:
        return None
    method = case.profile.speculation.method
    reads = method is Method.MTP or (method in _READS_HIDDEN_STATES and draft.kind in _READING_KINDS)
    width = target_width(draft)
    if not reads or width is None or width == target.embedding_length:
        return None
    return findings.error(
        "draft-hidden-size",
        f"{draft.path.name} was made for a target whose hidden states are {width} wide; those of {target.path.name} "
        f"are {target.embedding_length} wide. The server would abort while loading or at the first request.",
        expected=f"{target.embedding_length}, the target's embedding_length",
        observed=str(width),
        evidence="embedding_length and target_hidden_size in the headers of both files",
        fixes=[WITHOUT_SPECULATION],
    )


def draft_target_layers(case: LaunchCase) -> Finding | None:
    """A drafter names the layers of the target that it reads: they must be there, and EAGLE-3 wants exactly three."""
    draft = case.draft
    method = case.profile.speculation.method
    if draft is None or method not in _READS_HIDDEN_STATES or draft.kind not in _READING_KINDS:
        return None
    layers = draft.target_layers or ()
    if not layers or (method is Method.EAGLE3 and len(layers) != _EAGLE3_LAYERS):
        return _wrong_layers(
            draft,
            f"it names {counted(len(layers), 'layer')} of the target to read from",
            "exactly three layers" if method is Method.EAGLE3 else "at least one layer",
        )
    if case.target is None:
        return None
    last = _last_readable_layer(case.target, method)
    absent = [layer for layer in layers if not 0 <= layer <= last]
    if not absent:
        return None
    return _wrong_layers(
        draft,
        f"it reads layer {', '.join(map(str, absent))}, and {case.target.path.name} hands out 0 to {last}",
        f"layers from 0 to {last}",
    )


def _last_readable_layer(target: ModelFile, method: Method) -> int:
    """One past the last layer stands for the final hidden state; EAGLE-3 always gets it, block drafters from some."""
    trunk = target.block_count - min(target.nextn_layers, target.block_count)
    has_final = method is Method.EAGLE3 or target.architecture in _HANDS_OUT_LAST_STATE
    return trunk if has_final else trunk - 1


def _wrong_layers(draft: ModelFile, why: str, expected: str) -> Finding:
    return findings.error(
        "draft-target-layers",
        f"{draft.path.name} was not made for this target: {why}. The server would exit or abort.",
        expected=expected,
        observed=", ".join(map(str, draft.target_layers or ())) or "none",
        evidence="target_layers in the drafter's header, block_count in the target's",
        fixes=[WITHOUT_SPECULATION],
    )


def draft_target_architecture(case: LaunchCase) -> Finding | None:
    """Hidden states are handed out by some architectures only. Overridable: another build may know more of them."""
    target, method = case.target, case.profile.speculation.method
    if target is None or method not in _READS_HIDDEN_STATES or target.architecture in _HANDS_OUT_HIDDEN_STATES:
        return None
    return findings.error(
        "draft-target-architecture",
        f"Method {method} reads the target's hidden states, and llama.cpp build 11434 does not hand them out for the "
        f"architecture {target.architecture}: the server would start, and abort at the first request.",
        expected=f"one of {', '.join(sorted(_HANDS_OUT_HIDDEN_STATES))}",
        observed=target.architecture,
        evidence="the graphs of llama.cpp build 11434; `layer input tensor is null` was seen on others",
        overridable=True,
        fixes=[
            Fix("Draft from repeated text instead", {"speculation": {"method": "ngram-mod", "draft": None}}),
            WITHOUT_SPECULATION,
        ],
    )


def dspark_confidence(case: LaunchCase) -> Finding | None:
    """Without a confidence head a threshold is refused, and the server runs on without speculation."""
    speculation = case.profile.speculation
    if speculation.method is not Method.DSPARK or case.draft is None or case.draft.kind is not ModelKind.DSPARK:
        return None
    if case.draft.has_confidence_head or speculation.draft_probability_min == 0:
        return None
    return findings.error(
        "dspark-confidence",
        f"{case.draft.path.name} has no confidence head, and draft_probability_min is "
        f"{speculation.draft_probability_min:g}: the server would become ready and never draft.",
        expected="draft_probability_min 0, or a drafter with a confidence head",
        observed=f"{speculation.draft_probability_min:g} without a confidence head",
        evidence="has_confidence_head and conf_proj in the drafter's header",
        fixes=[Fix("No threshold", {"speculation": {"draft_probability_min": 0}})],
    )


def draft_tokens_clamped(case: LaunchCase) -> Finding | None:
    """More draft tokens than the drafter was trained for are not drafted."""
    wanted = case.profile.speculation.draft_tokens_max
    effective = resolve(case).draft_tokens_max
    if effective >= wanted:
        return None
    return findings.info(
        "draft-tokens-clamped",
        f"draft_tokens_max is {wanted}, and this drafter makes at most {effective} at once: so many are drafted.",
        expected=f"at most {effective}",
        observed=str(wanted),
        evidence="block_size, or the number of MTP heads, in the drafter's header",
        fixes=[Fix("The effective value", {"speculation": {"draft_tokens_max": effective}})],
    )


RULES = (
    mtp_absent_in_draft,
    mtp_heads,
    draft_hidden_size,
    draft_target_layers,
    draft_target_architecture,
    dspark_confidence,
    draft_tokens_clamped,
)
