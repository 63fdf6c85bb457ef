"""Rules on model files and their kinds."""

from app import findings
from app.errors import ModelFileError
from app.findings import Finding, Fix
from app.inventory.models import ModelFile, ModelKind
from app.placement.amounts import counted
from app.placement.case import LaunchCase
from app.speculative.parameters import Method

# Which kind of file each method takes as its draft model.
_DRAFT_KINDS: dict[Method, tuple[ModelKind, ...]] = {
    Method.DRAFT: (ModelKind.TARGET,),
    Method.DFLASH: (ModelKind.DFLASH,),
    Method.DSPARK: (ModelKind.DSPARK,),
    Method.EAGLE3: (ModelKind.EAGLE3,),
    Method.MTP: (ModelKind.MTP_ONLY, ModelKind.ASSISTANT, ModelKind.TARGET),
}
METHOD_FOR: dict[ModelKind, Method] = {
    ModelKind.TARGET: Method.DRAFT,
    ModelKind.DFLASH: Method.DFLASH,
    ModelKind.DSPARK: Method.DSPARK,
    ModelKind.EAGLE3: Method.EAGLE3,
    ModelKind.MTP_ONLY: Method.MTP,
    ModelKind.ASSISTANT: Method.MTP,
}
# Architectures with an MTP graph in llama.cpp build 11434. Others load the keys and fail, or abort.
MTP_ARCHITECTURES = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "hy_v3",
        "mimo2",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "qwen4exp",
        "step35",
    }
)


def unreadable(role: str, failure: ModelFileError) -> Finding:
    """The finding for a file that cannot be read; `role` is `target`, `draft` or `projector`."""
    return findings.error(
        f"{role}-unreadable",
        f"The {role} model cannot be used: {failure.message}",
        expected="a GGUF file, version 2 or 3, inside the model folders",
        observed=failure.code,
        evidence="the file's header",
    )


def target_split_name(case: LaunchCase) -> Finding | None:
    """The engine takes parts of a set by one spelling only; it exits on others."""
    return _split_name("target", case.target)


def draft_split_name(case: LaunchCase) -> Finding | None:
    """The same for the draft model."""
    return _split_name("draft", case.draft)


def _split_name(role: str, model: ModelFile | None) -> Finding | None:
    if model is None or model.has_loadable_names:
        return None
    return findings.error(
        f"{role}-unreadable",
        f"The parts of {model.path.name} are there, but the engine loads a split model only under names that end in "
        f"-00001-of-{len(model.parts):05d}.gguf: rename the {counted(len(model.parts), 'file')}.",
        expected="`-` before NNNNN-of-NNNNN",
        observed=model.path.name,
        evidence="the names of the parts",
    )


def target_is_a_drafter(case: LaunchCase) -> Finding | None:
    """A drafter has no output of its own to serve; the engine aborts on it."""
    target = case.target
    if target is None or target.kind in (ModelKind.TARGET, ModelKind.UNKNOWN):
        return None
    method = METHOD_FOR.get(target.kind)
    return findings.error(
        "target-is-a-drafter",
        f"{target.path.name} is not a target model but of kind {target.kind.value} "
        f"(architecture {target.architecture}).",
        expected="an ordinary model as target",
        observed=target.kind.value,
        evidence="architecture and tensor names in the file's header",
        fixes=_swap(case, method),
    )


def _swap(case: LaunchCase, method: Method | None) -> list[Fix]:
    draft = case.profile.speculation.draft
    if method is None or draft is None or case.draft is None or case.draft.kind is not ModelKind.TARGET:
        return []
    patch = {
        "target": {"path": draft.path},
        "speculation": {"method": method.value, "draft": {"path": case.profile.target.path}},
    }
    return [Fix("Swap target and draft", patch)]


def draft_missing(case: LaunchCase) -> Finding | None:
    """Without its file the engine starts, and never speculates."""
    speculation = case.profile.speculation
    if not speculation.method.needs_draft_model or speculation.draft is not None:
        return None
    return findings.error(
        "draft-missing",
        f"Method {speculation.method} needs a draft model, and the profile names none: "
        "the server would start and run without speculation.",
        expected="speculation.draft.path",
        observed="no draft",
        evidence="the profile",
        fixes=[Fix("Do without speculation", {"speculation": {"method": "none"}})],
    )


def projector_kind(case: LaunchCase) -> Finding | None:
    """The engine exits on a projector that is none."""
    projector = case.projector
    if projector is None or projector.kind is ModelKind.PROJECTOR:
        return None
    return findings.error(
        "projector-kind",
        f"{projector.path.name} is not a multimodal projector but of kind {projector.kind.value} (architecture "
        f"{projector.architecture}).",
        expected="a file of architecture clip",
        observed=projector.architecture,
        evidence="the file's header",
        fixes=[Fix("Do without a projector", {"projector": None})],
    )


def draft_is_target(case: LaunchCase) -> Finding | None:
    """A target that drafts for itself agrees with itself always, and is slower than alone."""
    draft = case.draft
    if case.profile.speculation.method is not Method.DRAFT or draft is None or case.target is None:
        return None
    if draft.path != case.target.path:
        return None
    return findings.warning(
        "draft-is-target",
        f"{draft.path.name} drafts for itself: every draft is accepted, and each costs as much as the token it saves. "
        "It is slower than no draft.",
        expected="a draft model a tenth of the target's size or less",
        observed="the same file",
        evidence="the profile",
        fixes=[
            Fix("Draft from repeated text instead", {"speculation": {"method": "ngram-mod", "draft": None}}),
            Fix("Do without speculation", {"speculation": {"method": "none", "draft": None}}),
        ],
    )


def draft_unused(case: LaunchCase) -> Finding | None:
    """A draft that no method uses is loaded into memory and thrown away."""
    speculation = case.profile.speculation
    if speculation.draft is None or speculation.method.takes_draft_model:
        return None
    method = METHOD_FOR.get(case.draft.kind) if case.draft else None
    fixes = [Fix("Leave the draft out", {"speculation": {"draft": None}})]
    if method is not None:
        fixes.insert(0, Fix(f"Use the method the file is for: {method}", {"speculation": {"method": method.value}}))
    return findings.error(
        "draft-unused",
        f"The profile names a draft model, and method {speculation.method} does not use one: "
        "it would take memory and change nothing.",
        expected="a method that drafts with a model",
        observed=speculation.method.value,
        evidence="the profile",
        fixes=fixes,
    )


def draft_kind(case: LaunchCase) -> Finding | None:
    """The wrong kind of file aborts, or runs silently as the wrong method."""
    speculation = case.profile.speculation
    if case.draft is None or not speculation.method.takes_draft_model:
        return None
    expected = _DRAFT_KINDS[speculation.method]
    if case.draft.kind in expected:
        return None
    method = METHOD_FOR.get(case.draft.kind)
    return findings.error(
        "draft-kind",
        f"{case.draft.path.name} is of kind {case.draft.kind.value} (architecture {case.draft.architecture}), "
        f"which is not what method {speculation.method} drafts with.",
        expected=" or ".join(kind.value for kind in expected),
        observed=case.draft.kind.value,
        evidence="architecture and tensor names in the file's header",
        fixes=[Fix(f"Use the method the file is for: {method}", {"speculation": {"method": method.value}})]
        if method
        else (),
    )


def mtp_absent(case: LaunchCase) -> Finding | None:
    """MTP without heads to draft with: the engine exits or aborts."""
    if case.profile.speculation.method is not Method.MTP or case.profile.speculation.draft is not None:
        return None
    target = case.target
    if target is None:
        return None
    if target.nextn_layers == 0:
        why = "it has no MTP layers (no nextn_predict_layers)"
    elif not target.has_nextn_tensors:
        why = "it names MTP layers, but their tensors were left out of the file"
    elif target.architecture not in MTP_ARCHITECTURES:
        why = f"llama.cpp has no MTP graph for the architecture {target.architecture}"
    else:
        return None
    return findings.error(
        "mtp-absent",
        f"{target.path.name} cannot draft with MTP: {why}.",
        expected="nextn layers with their tensors, of an architecture with an MTP graph",
        observed=f"{counted(target.nextn_layers, 'nextn layer')}, architecture {target.architecture}",
        evidence="keys and tensor names in the file's header",
        fixes=[
            Fix("Draft from repeated text instead", {"speculation": {"method": "ngram-mod"}}),
            Fix("Do without speculation", {"speculation": {"method": "none"}}),
        ],
    )


RULES = (
    target_split_name,
    draft_split_name,
    target_is_a_drafter,
    draft_missing,
    projector_kind,
    draft_is_target,
    draft_unused,
    draft_kind,
    mtp_absent,
)
