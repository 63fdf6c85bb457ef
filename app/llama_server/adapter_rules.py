"""Rules on LoRA adapters and control vectors in the extra arguments. Pure."""

from collections.abc import Iterator

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile, ModelKind
from app.llama_server.extra_args import read_flags
from app.placement.adapters import DIRECTION, EMBEDDINGS, IGNORED, LORA_A, LORA_B, base_name, is_f32
from app.placement.amounts import counted
from app.placement.case import Adapter, LaunchCase
from app.placement.resolve import resolve
from app.speculative.parameters import Method

_LAYER_DIGITS_MAX = 6
_NAMES = {ModelKind.LORA: "a LoRA adapter", ModelKind.CONTROL_VECTOR: "a control vector"}
_EXPECTED = {
    ModelKind.LORA: "general.type adapter, adapter.type lora, in one file",
    ModelKind.CONTROL_VECTOR: "architecture controlvector, in one file",
}


def adapter_kind(case: LaunchCase) -> Finding | None:
    """The engine exits on a LoRA adapter that is none, and serves without a control vector that is none."""
    wrong = [each for each in case.adapters if each.file.kind is not each.kind or len(each.file.parts) > 1]
    if not wrong:
        return None
    first = wrong[0]
    return findings.error(
        "adapter-kind",
        f"{first.file.path.name} is not {_NAMES[first.kind]} but of kind {first.file.kind.value} (architecture "
        f"{first.file.architecture}, {counted(len(first.file.parts), 'file')}).",
        expected=_EXPECTED[first.kind],
        observed=", ".join(f"{each.file.path.name}: {each.file.kind.value}" for each in wrong),
        evidence="the file's header",
        fixes=_without(case, wrong),
    )


def adapter_mismatch(case: LaunchCase) -> Finding | None:
    """An adapter of another model: the engine exits, aborts, or serves without it."""
    if case.target is None:
        return None
    for each in case.adapters:
        if each.file.kind is not each.kind:
            continue
        why = next(_lora_problems(each.file, case) if each.kind is ModelKind.LORA else _vector_problems(each, case), "")
        if why:
            return findings.error(
                "adapter-mismatch",
                f"{each.file.path.name} does not go with {case.target.path.name}: {why}.",
                expected=f"{_NAMES[each.kind]} that was made for {case.target.path.name}",
                observed=why,
                evidence="tensor names and shapes in the headers of both files",
                fixes=_without(case, [each]),
            )
    return None


def adapter_hint(case: LaunchCase) -> Finding | None:
    """Makers of control vectors name models each in their own way, and the engine does not look."""
    if case.target is None:
        return None
    for each in case.adapters:
        hint = each.file.header.text("controlvector.model_hint")
        if each.file.kind is ModelKind.CONTROL_VECTOR and hint and hint != case.target.architecture:
            return findings.warning(
                "adapter-hint",
                f"{each.file.path.name} says that it was made for {hint}, and {case.target.path.name} is of the "
                f"architecture {case.target.architecture}: unless that is another name for it, answers will be bad.",
                expected=case.target.architecture,
                observed=hint,
                evidence="controlvector.model_hint in the file's header",
            )
    return None


def adapter_tensor_mode(case: LaunchCase) -> Finding | None:
    """The products of an adapter cannot be divided: the engine aborts."""
    if case.profile.placement.split_mode != "tensor" or not resolve(case).devices:
        return None
    adapters = [each for each in case.adapters if each.kind is ModelKind.LORA]
    if not adapters:
        return None
    return findings.error(
        "adapter-tensor-mode",
        "Split mode tensor and LoRA adapters exclude each other: the engine would abort while loading.",
        expected="split_mode layer, or no LoRA adapter",
        observed=f"tensor, {', '.join(each.file.path.name for each in adapters)}",
        evidence="llama.cpp build 11434, on remote CPU devices",
        fixes=[Fix("Divide by layers", {"placement": {"split_mode": "layer"}}), *_without(case, adapters)],
    )


def _lora_problems(adapter: ModelFile, case: LaunchCase) -> Iterator[str]:
    target = case.target
    if target is None:
        return
    if adapter.architecture != target.architecture:
        yield f"it was made for the architecture {adapter.architecture}, not {target.architecture}"
    if not adapter.tensors:
        yield "it has no tensors"
    for name in adapter.tensors:
        if name.endswith((LORA_A, LORA_B)):
            yield from _pair_problems(adapter, base_name(name), case, target)
        elif not name.endswith(IGNORED):
            yield f"its tensor {name} is no part of a LoRA adapter"


def _pair_problems(adapter: ModelFile, name: str, case: LaunchCase, target: ModelFile) -> Iterator[str]:
    first, second = adapter.tensors.get(name + LORA_A), adapter.tensors.get(name + LORA_B)
    base = target.tensors.get(name)
    if first is None or second is None:
        yield f"of its two matrices for {name} one is missing"
    elif base is None:
        yield f"it changes {name}, which the target does not have"
    elif _is_left_out(name, case, target):
        yield f"it changes {name}, which is loaded for method mtp only"
    elif name == EMBEDDINGS and not target.has_own_head:
        yield f"it changes {name}, which is the target's head too: the engine would abort"
    else:
        a, b, whole = (_four(tensor.shape) for tensor in (first, second, base))
        fits = (whole[0], whole[1]) == ((b[1], a[1]) if name == EMBEDDINGS else (a[0], b[1]))
        inner = a[0] == b[0] if name == EMBEDDINGS else a[1] == b[0]
        if not fits or not inner or not a[2:] == b[2:] == whole[2:]:
            yield f"its matrices for {name} have other lengths"


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1, 1, 1, 1)[:4]


def _is_left_out(name: str, case: LaunchCase, target: ModelFile) -> bool:
    """MTP layers are not loaded where nothing drafts with them."""
    number = name.removeprefix("blk.").partition(".")[0]
    if not name.startswith("blk.") or not number.isdecimal() or Method.MTP in case.profile.speculation.methods:
        return False
    return int(number) >= target.block_count - target.nextn_layers


def _vector_problems(vector: Adapter, case: LaunchCase) -> Iterator[str]:
    """What makes the engine go on without it."""
    width = case.target.embedding_length if case.target else None
    if not vector.file.tensors:
        yield "it has no directions"
    for name, tensor in vector.file.tensors.items():
        layer = name.removeprefix(DIRECTION)
        numbered = layer.isascii() and layer.isdecimal() and len(layer) < _LAYER_DIGITS_MAX and int(layer) > 0
        if not name.startswith(DIRECTION) or not numbered:
            yield f"its tensor {name} is no direction of a layer from 1 up"
        elif len(tensor.shape) != 1 or not is_f32(tensor.type_id):
            yield f"its {name} is not one row of 32-bit numbers"
        elif width is not None and tensor.shape[0] != width:
            yield f"its {name} has {tensor.shape[0]} values, and the target's states have {width}"


def _without(case: LaunchCase, adapters: list[Adapter]) -> list[Fix]:
    """The extra arguments without the flags that name these files."""
    names = sorted({each.flag for each in adapters})
    words, kept = case.profile.extra_args, list[str]()
    for flag in read_flags(words, case.engine.flags):
        if flag.name not in names:
            kept += [flag.name] if flag.at is None else [flag.name, words[flag.at]]
    return [Fix(f"Leave {', '.join(names)} out", {"extra_args": kept})]


RULES = (adapter_kind, adapter_mismatch, adapter_hint, adapter_tensor_mode)
