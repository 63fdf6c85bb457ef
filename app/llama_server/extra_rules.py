"""Rules on what extra arguments mean for the rest of a launch: context, cache, and devices of a draft. Pure."""

from collections.abc import Sequence

from app import findings
from app.findings import Finding, Fix
from app.inventory.models import ModelFile
from app.llama_server.extra_args import ExtraFlag, read_flags
from app.placement.amounts import counted
from app.placement.cache_types import QUANTISED_TYPES
from app.placement.case import LaunchCase
from app.placement.header_keys import HeaderKeys
from app.placement.places import places_of
from app.placement.resolve import resolve
from app.speculative.parameters import Method

_ROTATED_LENGTH = 64
_DRAFT_DEVICE = ("-devd", "--device-draft", "--spec-draft-device")


def context_over_trained(case: LaunchCase) -> Finding | None:
    """The engine gives a slot no more than the trained length; only YaRN raises that."""
    target, slots = case.target, case.profile.context.slots
    if target is None or not target.context_length_trained or case.profile.context.size is None:
        return None
    usable = _usable_length(case, target, target.context_length_trained)
    size = resolve(case).context_size
    if size <= usable * slots:
        return None
    return findings.warning(
        "context-over-trained",
        f"The context has {size // slots} tokens for each slot, and {target.path.name} was trained for {usable}: the "
        "engine gives a slot no more than that, and what is beyond takes memory and is never used.",
        expected=f"at most {usable} tokens for each slot, or YaRN scaling in extra_args",
        observed=f"{counted(size, 'token')} for {counted(slots, 'slot')}",
        evidence="context_length in the file's header, context.size, extra_args",
        fixes=[Fix(f"The trained length for each slot: {usable}", {"context": {"size": usable * slots}})],
    )


def _usable_length(case: LaunchCase, target: ModelFile, trained: int) -> int:
    """What a slot can have. Linear scaling stretches positions, and slots stay capped at the trained length."""
    keys = HeaderKeys(target)
    kind = target.header.metadata.get(f"{target.architecture}.rope.scaling.type", "linear")
    if (_value(case, "--rope-scaling") or kind) != "yarn":
        return trained
    stretch = _number(case, "--rope-scale")
    shrink = _number(case, "--rope-freq-scale")
    if not stretch:
        stretch = 1 / shrink if shrink else None
    if not stretch:
        return trained
    original = _number(case, "--yarn-orig-ctx") or keys.number("rope.scaling.original_context_length") or trained
    return int(original * stretch)


def context_shift_k_type(case: LaunchCase) -> Finding | None:
    """A shift rotates K again: of some cache types the engine cannot, and dies when the first context is full."""
    target, context = case.target, case.profile.context
    if target is None or not _shifts(case) or not _can_shift(case, target):
        return None
    if context.k_type == "bf16":
        why = "K cannot be rotated in bf16"
    elif context.k_type in QUANTISED_TYPES and _key_length(target) % _ROTATED_LENGTH:
        why = (
            f"with heads of {_key_length(target)} values K of type {context.k_type} has no rotation to undo, and "
            "llama.cpp uses it all the same"
        )
    else:
        return None
    return findings.error(
        "context-shift-k-type",
        f"--context-shift kills this launch: {why}. The server would start, and crash at the first request that fills "
        "its context.",
        expected=f"a K type of f16 or f32, a key length that {_ROTATED_LENGTH} divides, or no context shift",
        observed=f"K {context.k_type}, key length {_key_length(target)}",
        evidence="llama.cpp build 11434, on the host and on remote CPU devices",
        fixes=[
            Fix("Keep K in f16", {"context": {"k_type": "f16"}}),
            Fix("No context shift", {"extra_args": _without(case, ("--context-shift",))}),
        ],
    )


def _shifts(case: LaunchCase) -> bool:
    said = [flag.name for flag in _flags(case) if flag.name in ("--context-shift", "--no-context-shift")]
    return said[-1:] == ["--context-shift"]


def _can_shift(case: LaunchCase, target: ModelFile) -> bool:
    """Elsewhere the engine turns it off by itself: beside a projector, and with several positions per token."""
    has_sections = f"{target.architecture}.rope.dimension_sections" in target.header.metadata
    return case.profile.projector is None and not has_sections and target.architecture != "step35"


def _key_length(target: ModelFile) -> int:
    keys = HeaderKeys(target)
    heads = keys.number("attention.head_count")
    return keys.number("attention.key_length", (target.embedding_length or 0) // heads if heads else 0)


def draft_split_inherited(case: LaunchCase) -> Finding | None:
    """A draft over several devices is divided by the target's shares, whatever its own size."""
    named = _value(case, *_DRAFT_DEVICE)
    draft = case.profile.speculation.draft
    if named is None or "," not in named or draft is None or case.target is None:
        return None
    output = places_of(case).output or named.split(",")[-1]
    return findings.warning(
        "draft-split-inherited",
        f"The draft is given {named}: it is divided by the target's tensor split, position by position.",
        expected="one device for the draft",
        observed=named,
        evidence="extra_args; llama.cpp build 11434 copies the target's placement to the draft",
        fixes=[
            Fix(
                f"Pin the draft to {output}",
                {"extra_args": _without(case, _DRAFT_DEVICE), "speculation": {"draft": {"device": output}}},
            )
        ],
    )


def mtp_draft_device_ignored(case: LaunchCase) -> Finding | None:
    """The target's own MTP heads run where their layer is."""
    named = _value(case, *_DRAFT_DEVICE)
    speculation = case.profile.speculation
    if named is None or speculation.method is not Method.MTP or speculation.draft is not None:
        return None
    return findings.info(
        "mtp-draft-device-ignored",
        f"The draft device {named} has no effect: the target's own MTP heads run where their layer is.",
        expected="no draft device, or a draft file",
        observed=named,
        evidence="extra_args; llama.cpp build 11434",
        fixes=[Fix("Leave it out", {"extra_args": _without(case, _DRAFT_DEVICE)})],
    )


def _flags(case: LaunchCase) -> list[ExtraFlag]:
    return read_flags(case.profile.extra_args, case.engine.flags)


def _value(case: LaunchCase, *names: str) -> str | None:
    """The value of a flag in the extra arguments; of several the last, as the engine takes it."""
    words = case.profile.extra_args
    found = [words[flag.at] for flag in _flags(case) if flag.name in names and flag.at is not None]
    return found[-1] if found else None


def _number(case: LaunchCase, *names: str) -> float | None:
    value = _value(case, *names)
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


def _without(case: LaunchCase, names: Sequence[str]) -> list[str]:
    words = case.profile.extra_args
    kept: list[str] = []
    for flag in _flags(case):
        if flag.name not in names:
            kept += [flag.name] if flag.at is None else [flag.name, words[flag.at]]
    return kept


RULES = (context_over_trained, context_shift_k_type, draft_split_inherited, mtp_draft_device_ignored)
