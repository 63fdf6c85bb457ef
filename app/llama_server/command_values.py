"""Values of flags as a profile says them. Pure: text in, a value and what has to be said of it out."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.errors import ProfileInvalid
from app.inventory.engine import EngineFlag
from app.profiles.profile import parse_profile

_MIB = 1 << 20
_ON: Final = frozenset({"on", "enabled", "true", "1"})
_OFF: Final = frozenset({"off", "disabled", "false", "0"})
_DEVICE = re.compile(r"(cuda|rocm|vulkan|metal|sycl|rpc|hip|gpu)?[: ]?(\d+)", re.IGNORECASE)
_SPELLED: Final = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "metal": "Metal", "sycl": "SYCL", "rpc": "RPC",
                   "hip": "ROCm"}  # fmt: skip


class Unreadable(Exception):
    """A value that means nothing for its field; the text says why."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the words: of the engine, its devices in order and its flags; of model files by path.

    `draft_kind` answers the kind of a file (`inventory.models.ModelKind`) and `trained_length` its context in tokens;
    both None where the file cannot be read.
    """

    device_names: Sequence[str] = ()
    flags: Mapping[str, EngineFlag] = field(default_factory=dict)
    draft_kind: Callable[[str], str | None] | None = None
    trained_length: Callable[[str], int | None] | None = None


@dataclass(frozen=True, slots=True)
class Understood:
    """A value; what is wrong with it as it was written; what it means."""

    value: Any
    wrong: str = ""
    remark: str = ""


def understand(path: str, text: str, known: Known) -> Understood:
    """The value of the field at `path`. Raises Unreadable."""
    read = _READERS.get(path, _text)
    understood = read(text, known)
    if understood.value is not None and (problem := problem_of(path, understood.value)):
        raise Unreadable(problem)
    return understood


def problem_of(path: str, value: Any) -> str | None:
    """Why a profile would not take this value there."""
    try:
        parse_profile(nested({"id": "x", "target.path": "x", "speculation.draft.path": "x", path: value}))
    except ProfileInvalid as problem:
        return "; ".join(str(found["message"]) for found in problem.problems)
    return None


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A document from its fields by dotted path."""
    document: dict[str, Any] = {}
    for path, value in fields.items():
        *parts, last = path.split(".")
        inside = document
        for part in parts:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return document


def switch_value(text: str) -> bool:
    """What a variable says of a flag without a value. Raises Unreadable."""
    lowered = text.lower()
    if lowered in _ON:
        return True
    if lowered in _OFF:
        return False
    raise Unreadable(f"{text!r} is neither on nor off")


def _text(text: str, _: Known) -> Understood:
    return Understood(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"{text!r} is not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unreadable(f"{text!r} is not a number") from None


def _whole(text: str, _: Known) -> Understood:
    return Understood(_integer(text))


def _rate(text: str, _: Known) -> Understood:
    return Understood(_float(text))


def _layers(text: str, _: Known) -> Understood:
    if text in ("all", "auto"):
        return Understood(text)
    count = _integer(text)
    special = {-1: "auto", -2: "all"}
    return Understood(special.get(count, count))


def _threads(text: str, _: Known) -> Understood:
    count = _integer(text)
    return Understood(count) if count > 0 else Understood(None, remark="as many as the engine chooses")


def _size(text: str, _: Known) -> Understood:
    tokens = _integer(text)
    return Understood(tokens or None, remark="" if tokens else "the trained length, which fitting leaves alone")


def _slots(text: str, _: Known) -> Understood:
    count = _integer(text)
    if count == 0:
        raise Unreadable("llama-server refuses 0 slots")
    return Understood(None if count < 0 else count)


def _shares(text: str, _: Known) -> Understood:
    parts = [part for part in re.split(r"[,/]", text) if part]
    shares = [_float(part) for part in parts]
    return Understood([int(share) if share.is_integer() else share for share in shares])


def _devices(text: str, known: Known) -> Understood:
    if text == "none":
        return Understood([], remark="the host computes")
    names, wrong = [], []
    for word in text.split(","):
        name = _device(word.strip(), known)
        names.append(name)
        if name != word:
            wrong.append(f"{word} as {name}")
    return Understood(names, _wrong_devices(wrong))


def _draft_device(text: str, known: Known) -> Understood:
    names = ["none"] if text == "none" else _devices(text, known).value
    if len(names) == 1:
        return Understood(names[0], "" if text == names[0] else _wrong_devices([f"{text} as {names[0]}"]))
    return Understood(
        None,
        "a draft over several devices would be divided by the target's shares; Paceline puts it on one device, beside "
        "the target's output layer",
    )


def _wrong_devices(pairs: list[str]) -> str:
    if not pairs:
        return ""
    return f"llama-server takes the names that --list-devices prints, so it would exit; understood: {', '.join(pairs)}"


def _device(word: str, known: Known) -> str:
    """The engine's name for what people write: `0`, `cuda0`, `CUDA:0`."""
    if word in known.device_names:
        return word
    listed = {name.lower(): name for name in known.device_names}
    if word.lower() in listed:
        return listed[word.lower()]
    match = _DEVICE.fullmatch(word)
    if match is None:
        return word
    number = match[2]
    if match[1] and match[1].lower() != "gpu":
        name = _SPELLED[match[1].lower()] + number
        return listed.get(name.lower(), name)
    # A bare number counts the cards of one backend; devices of other machines come first and are not meant.
    local = [name for name in known.device_names if not name.startswith("RPC")]
    return next((name for name in local if re.fullmatch(rf"\D+{number}", name)), f"CUDA{number}")


def _overrides(text: str, _: Known) -> Understood:
    return Understood([part for part in text.split(",") if part])


def _flash_attention(text: str, _: Known) -> Understood:
    lowered = text.lower()
    if lowered in ("auto", "-1"):
        return Understood("auto")
    return Understood("on" if switch_value(lowered) else "off")


def _fit(text: str, _: Known) -> Understood:
    return Understood(switch_value(text))


def _margin(text: str, _: Known) -> Understood:
    margins = [_integer(part) for part in text.split(",") if part]
    if not margins:
        raise Unreadable(f"{text!r} is not a number of MiB")
    remark = "MiB" if len(set(margins)) == 1 else "a profile has one margin for all devices: the largest"
    return Understood(max(margins) * _MIB, remark="" if remark == "MiB" else remark)


def _prompt_cache(text: str, _: Known) -> Understood:
    mib = _integer(text)
    if mib < 0:
        return Understood(
            None, remark="a cache without limit takes the host's memory; the plan sizes it, 8 GiB at most"
        )
    return Understood(mib * _MIB)


def _idle(text: str, _: Known) -> Understood:
    seconds = _integer(text)
    return Understood(None if seconds < 0 else seconds)


def _names(text: str, _: Known) -> Understood:
    return Understood([part.strip() for part in text.split(",") if part.strip()])


_READERS: Final[dict[str, Callable[[str, Known], Understood]]] = {
    "speculation.draft.device": _draft_device,
    "speculation.draft.gpu_layers": _layers,
    "speculation.draft.cpu_moe_layers": _whole,
    "speculation.draft_tokens_max": _whole,
    "speculation.draft_tokens_min": _whole,
    "speculation.draft_probability_min": _rate,
    **{
        f"speculation.ngram.{part}": _whole
        for part in ("match_length", "draft_length_min", "draft_length_max", "min_hits")
    },
    "placement.devices": _devices,
    "placement.tensor_split": _shares,
    "placement.main_gpu": _whole,
    "placement.gpu_layers": _layers,
    "placement.cpu_moe_layers": _whole,
    "placement.override_tensor": _overrides,
    "placement.fit": _fit,
    "placement.margin_bytes": _margin,
    "context.size": _size,
    "context.slots": _slots,
    "context.batch_size": _whole,
    "context.ubatch_size": _whole,
    "context.flash_attention": _flash_attention,
    "context.threads": _threads,
    "context.prompt_cache_bytes": _prompt_cache,
    "serving.aliases": _names,
    "serving.idle_timeout_seconds": _idle,
    "tags": _names,
}
