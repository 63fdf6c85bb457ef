"""What llama-server does where its command line is silent, made explicit where a profile would do otherwise. Pure."""

from app.llama_server.command_notes import NoteKind
from app.llama_server.command_reading import METHODS, Reading
from app.speculative.parameters import Method

# What a file's kind is for, and whether llama-server finds that out by itself (build 11434).
_METHOD_OF_KIND = {
    "target": (Method.DRAFT, False),
    "dflash": (Method.DFLASH, True),
    "dspark": (Method.DSPARK, True),
    "mtp_only": (Method.MTP, True),
    "eagle3": (Method.EAGLE3, False),
    "assistant": (Method.MTP, False),
}
_AUTO_SLOTS = 4
_CUDA_ORDER = "CUDA_DEVICE_ORDER"
_DRAFT = "speculation.draft."
_LAYOUT = ("placement.tensor_split", "placement.override_tensor", "placement.cpu_moe_layers")
_MODES = {(False, False): "none", (True, False): "mmap", (False, True): "mlock", (True, True): "mmap+mlock"}


def settle_speculation(reading: Reading) -> None:
    """Method, draft and limits of n-gram methods, once every flag is read."""
    path = reading.fields.get(f"{_DRAFT}path")
    methods = [METHODS[name] for name in dict.fromkeys(reading.types)]
    if path is not None and not methods and "speculation.method" not in reading.said:
        methods = [_inferred(reading, path)]
    main = _main_method(reading, methods)
    if main is not None:
        reading.fields["speculation.method"] = main.value
        also = [method.value for method in methods if method.is_ngram and method is not main]
        if also:
            reading.fields["speculation.also"] = also
    if path is None:
        reason = "no draft file is named, so a profile has no place for it"
        for field in [name for name in reading.said if name.startswith(_DRAFT)]:
            reading.withdraw(field, NoteKind.DROPPED, reason)
    elif f"{_DRAFT}device" not in reading.said:
        message = "without it llama-server divides the draft over all devices as the target; a profile puts it on one, "
        reading.note(NoteKind.IMPLIED, "-devd", f"{message}beside the target's output layer", f"{_DRAFT}device")
    _settle_ngram(reading, methods)


def _inferred(reading: Reading, path: str) -> Method:
    kind = reading.known.draft_kind(path) if reading.known.draft_kind else None
    method, is_found = _METHOD_OF_KIND.get(kind or "", (Method.DRAFT, False))
    if is_found:
        message = f"llama-server infers the method from the draft's file: {method.value}"
    else:
        message = (
            "without it llama-server loads the draft, never uses it and says nothing"
            if kind in ("target", "eagle3", "assistant")
            else "without it llama-server infers the method from some kinds of draft; any other it loads, never uses, "
            "and says nothing"
        )
        message += f"; the profile says {method.value}"
    reading.note(NoteKind.IMPLIED, "--spec-type", message, "speculation.method", method.value)
    return method


def _main_method(reading: Reading, methods: list[Method]) -> Method | None:
    """The drafter; of n-gram methods alone the last, and the engine asks them in an order of its own anyway."""
    drafters = [method for method in methods if not method.is_ngram]
    for left_out in drafters[1:]:
        reading.note(
            NoteKind.REFUSED,
            f"--spec-type {left_out.value}",
            f"a profile has one drafter beside n-gram methods, and that is {drafters[0].value}",
        )
    return next(iter(drafters or methods[-1:]), None)


def _settle_ngram(reading: Reading, methods: list[Method]) -> None:
    for owner, part, value, at in reading.ngram:
        field = f"speculation.ngram.{part}"
        active = [method.value for method in methods if method.is_ngram]
        if not active or (owner is not None and owner not in active):
            reading.renote(at, NoteKind.DROPPED, f"no effect: {owner or 'an n-gram method'} is not asked to draft")
            continue
        if reading.fields.get(field, value) != value:
            reading.note(
                NoteKind.CORRECTED, reading.notes[at].said, "a profile has one such limit for all n-gram methods, and "
                "the last one counts", field, value,
            )  # fmt: skip
        reading.fields[field] = value


def settle_loading(reading: Reading) -> None:
    """The old flags of how a file is read are one flag today."""
    if not reading.loading:
        return
    is_mapped, is_locked, is_direct = True, False, False
    for name, _ in reading.loading:
        if name in ("--mmap", "--no-mmap"):
            is_mapped = name == "--mmap"
        elif name == "--mlock":
            is_locked = True
        else:
            is_direct = name in ("-dio", "--direct-io")
    mode = "dio" if is_direct else _MODES[is_mapped, is_locked]
    named = [words for name, words in reading.extra.items() if name in ("-lm", "--load-mode")]
    said = named[-1][-1] if named else mode
    if not named:
        reading.extra["--load-mode"] = ("--load-mode", mode)
    for name, at in reading.loading:
        message = f"llama-server no longer has {name} and would exit; --load-mode {said} says it"
        reading.renote(at, NoteKind.RENAMED, message, "extra_args", ["--load-mode", said])


def settle_context(reading: Reading) -> None:
    """Slots, pool and length: the engine's own answer to silence is four slots that share one pool."""
    fields, said = reading.fields, reading.said
    slots = fields.get("context.slots")
    if slots is None:
        fields["context.slots"] = slots = _AUTO_SLOTS
        reading.note(
            NoteKind.IMPLIED, "-np", "without it llama-server makes 4 slots over one pool of -c tokens, and when that "
            "is full every running request fails (older builds had one slot); for one slot say -np 1",
            "context.slots", _AUTO_SLOTS,
        )  # fmt: skip
        if "context.unified_kv" not in said:
            fields["context.unified_kv"] = True
            reading.note(
                NoteKind.IMPLIED, "-kvu", "on where the number of slots is not said", "context.unified_kv", True
            )
    if reading.per_slot is not None:
        fields["context.unified_kv"] = True
        fields.setdefault("context.size", reading.per_slot * slots)
    elif "context.size" not in fields:
        _settle_length(reading, slots)


def _settle_length(reading: Reading, slots: int) -> None:
    fields = reading.fields
    target = fields.get("target.path")
    trained = reading.known.trained_length(target) if target and reading.known.trained_length else None
    if trained is None:
        reading.note(
            NoteKind.IMPLIED, "-c", "without it llama-server takes the length that the model was trained for; a "
            "profile takes up to 8,192 tokens for each slot: say context.size", "context.size",
        )  # fmt: skip
        return
    # Fitting, on by default, gives each slot the whole length; it may also take from it, which a profile does not.
    is_multiplied = not fields.get("context.unified_kv", False) and fields.get("placement.fit", True)
    fields["context.size"] = size = trained * slots if is_multiplied else trained
    shrinks = "" if "context.size" in reading.said else ", and shrinks it unasked where memory is short"
    reading.note(
        NoteKind.IMPLIED, "-c", f"without it llama-server takes the trained length ({trained} tokens){shrinks}",
        "context.size", size,
    )  # fmt: skip


def settle_placement(reading: Reading) -> None:
    """Layers and fitting, and the order in which devices are counted."""
    fields, said = reading.fields, reading.said
    if "placement.gpu_layers" not in said:
        fields["placement.gpu_layers"] = "auto"
        reading.note(
            NoteKind.IMPLIED, "-ngl", "auto: all layers, or what fitting leaves on the devices", "placement.gpu_layers",
            "auto",
        )  # fmt: skip
    if "placement.fit" not in said:
        decides = fields.get("placement.gpu_layers") == "auto" and not any(name in fields for name in _LAYOUT)
        fields["placement.fit"] = decides
        message = (
            "on by default: llama-server changes layers and split after the check to what fits then"
            if decides
            else "on by default, but with layers or a layout said it has nothing left to change"
        )
        reading.note(NoteKind.IMPLIED, "-fit", message, "placement.fit", decides)
    if "context.prompt_cache_bytes" not in said:
        reading.note(
            NoteKind.IMPLIED, "-cram", "without it llama-server keeps up to 8 GiB of prompts in host memory; a profile "
            "sizes that by the host", "context.prompt_cache_bytes",
        )  # fmt: skip
    _note_device_order(reading)


def _note_device_order(reading: Reading) -> None:
    fields = reading.fields
    cards = [name for name in reading.known.device_names if name.startswith("CUDA")]
    if f"env.{_CUDA_ORDER}" in fields or (reading.known.device_names and len(cards) < 2):
        return
    named = [*fields.get("placement.devices", []), fields.get(f"{_DRAFT}device") or ""]
    counts = any(name.startswith("CUDA") for name in named) or any(
        name in fields for name in ("placement.main_gpu", "placement.tensor_split", "env.CUDA_VISIBLE_DEVICES")
    )
    if counts:
        reading.note(
            NoteKind.IMPLIED, _CUDA_ORDER, "without it CUDA counts cards by speed, and Paceline has them counted by "
            "bus: with unequal cards CUDA0 may be another one. `paceline devices` shows them",
        )  # fmt: skip
