"""Which flags of the engine a profile may add, which belong to Paceline, and why. Tables and a pure reader of lists.

An allowlist: what is not named here is refused, so that a new flag of a new build opens nothing by itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.inventory.engine import EngineFlag
from app.inventory.models import ModelKind


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALLOWED: dict[str, tuple[str, ...]] = {
    "sampling defaults": _words(
        "--samplers --sampler-seq --sampling-seq -s --seed --temp --temperature --top-k --top-p --min-p "
        "--top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical --typical-p --repeat-last-n "
        "--repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length "
        "--dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range "
        "--dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --ignore-eos -bs "
        "--backend-sampling -n --predict --n-predict --keep"
    ),
    "chat template and reasoning": _words(
        "--chat-template --chat-template-kwargs --jinja --no-jinja --reasoning-format -rea --reasoning "
        "--reasoning-budget --reasoning-budget-message --reasoning-effort --reasoning-preserve --no-reasoning-preserve "
        "--skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant -sp --special "
        "--spm-infill"
    ),
    "rope": _words(
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
        "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast"
    ),
    "threads and batching": _words(
        "-tb --threads-batch -td --threads-draft --spec-draft-threads -tbd --threads-batch-draft "
        "--spec-draft-threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch "
        "-Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch --numa -cb --cont-batching -nocb "
        "--no-cont-batching --threads-http"
    ),
    "cache and loading": _words(
        "--cache-prompt --no-cache-prompt --cache-reuse -ctxcp --ctx-checkpoints --swa-checkpoints "
        "--cache-idle-slots --no-cache-idle-slots -sps --slot-prompt-similarity --swa-full --context-shift "
        "--no-context-shift -kvo --kv-offload -nkvo --no-kv-offload -lm --load-mode -lzm --lazy-mode "
        "--check-tensors --repack -nr --no-repack --op-offload --no-op-offload --no-host -ncffn --n-cpu-ffn "
        "--moe-cache-mib --mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io"
    ),
    "drafting": _words(
        "--spec-draft-p-split --draft-p-split --spec-draft-backend-sampling --no-spec-draft-backend-sampling "
        "--spec-draft-sampling"
    ),
    "serving": _words(
        "-to --timeout --sse-ping-interval --warmup --no-warmup --embedding --embeddings --rerank --reranking "
        "--pooling --mmproj-offload --no-mmproj-offload --image-min-tokens --image-max-tokens"
    ),
}
# Their value is a file, which must lie in the model folders.
PATH_VALUED = _words("--chat-template-file")
# Their value is one file or several, each of which must be what the flag takes it for.
ADAPTERS: dict[str, ModelKind] = {
    "--lora": ModelKind.LORA,
    "--lora-scaled": ModelKind.LORA,
    "--control-vector": ModelKind.CONTROL_VECTOR,
    "--control-vector-scaled": ModelKind.CONTROL_VECTOR,
}
FILE_VALUED = (*PATH_VALUED, *ADAPTERS)
_SCALED = "-scaled"
# The engine divides lists of files by the first two, and a file from its scale by the third.
_DIVIDERS = ',"'
_SCALE_DIVIDER = ":"

_OWNED: dict[str, tuple[str, ...]] = {
    "target.path": _words("-m --model"),
    "projector": _words("-mm --mmproj"),
    "speculation.method": _words("--spec-type --spec-default"),
    "speculation.draft.path": _words("-md --model-draft --spec-draft-model"),
    "speculation.draft.device": _words("-devd --device-draft --spec-draft-device"),
    "speculation.draft.gpu_layers": _words("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl"),
    "speculation.draft.k_type": _words("-ctkd --cache-type-k-draft --spec-draft-type-k"),
    "speculation.draft.v_type": _words("-ctvd --cache-type-v-draft --spec-draft-type-v"),
    "speculation.draft.cpu_moe_layers": _words(
        "-cmoed --cpu-moe-draft --spec-draft-cpu-moe "
        "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe"
    ),
    "speculation.draft_tokens_max": _words("--spec-draft-n-max --draft --draft-n --draft-max"),
    "speculation.draft_tokens_min": _words("--spec-draft-n-min --draft-min --draft-n-min"),
    "speculation.draft_probability_min": _words("--spec-draft-p-min --draft-p-min --spec-draft-conf-min"),
    "placement.devices": _words("-dev --device"),
    "placement.split_mode": _words("-sm --split-mode"),
    "placement.tensor_split": _words("-ts --tensor-split"),
    "placement.main_gpu": _words("-mg --main-gpu"),
    "placement.gpu_layers": _words("-ngl --gpu-layers --n-gpu-layers"),
    "placement.cpu_moe_layers": _words("-cmoe --cpu-moe -ncmoe --n-cpu-moe"),
    "placement.override_tensor": _words("-ot --override-tensor"),
    "placement.fit": _words("-fit --fit -fitc --fit-ctx"),
    "placement.margin_bytes": _words("-fitt --fit-target"),
    "context.size": _words("-c --ctx-size --kv-unified-per-slot"),
    "context.slots": _words("-np --parallel"),
    "context.unified_kv": _words("-kvu --kv-unified -no-kvu --no-kv-unified"),
    "context.k_type": _words("-ctk --cache-type-k"),
    "context.v_type": _words("-ctv --cache-type-v"),
    "context.batch_size": _words("-b --batch-size"),
    "context.ubatch_size": _words("-ub --ubatch-size"),
    "context.flash_attention": _words("-fa --flash-attn"),
    "context.threads": _words("-t --threads"),
    "context.prompt_cache_bytes": _words("-cram --cache-ram"),
    "serving.aliases": _words("-a --alias"),
    "serving.idle_timeout_seconds": _words("--sleep-idle-seconds"),
    "PACELINE_RPC": _words("--rpc"),
}
OWNED_BY_FIELD: dict[str, str] = {flag: field for field, flags in _OWNED.items() for flag in flags}

# How Paceline runs the server; a prefix stands for all that begin with it.
_PACELINE = _words(
    "--host --port --reuse-port --api-key --api-key-file --api-prefix --ssl-key-file --ssl-cert-file "
    "--metrics --slots --no-slots --props --tags --log- --offline --cors-"
)
_OPENS_MACHINE = _words(
    "--tools --mcp- --path --media-path --slot-save-path --log-prompts-dir --log-file --models- --model-url "
    "-mu --docker-repo -dr -hf -hfr --hf- -hfd -hfrd --spec-draft-hf -hfv -hft -lcs -lcd --lookup-cache- "
    "--agent --ui --webui --no-ui --no-webui --mmproj-url -mmu --completion-bash -cl --cache-list"
)
_GRAMMARS = _words("--grammar --grammar-file -j --json-schema -jf --json-schema-file")
_TWO_VALUES = _words("--control-vector-layer-range")


@dataclass(frozen=True, slots=True)
class ExtraFlag:
    """One flag of `extra_args` as the engine would read it; `at` is the index of its value, None where it has none."""

    name: str
    known: EngineFlag | None
    at: int | None


def read_flags(words: Sequence[str], flags: Mapping[str, EngineFlag]) -> list[ExtraFlag]:
    """Split a list of words into flags with their values, as the engine does.

    A word that stands where a flag should is returned as a flag of that name, unknown. What follows an unknown flag and
    looks like a value is taken for its value.
    """
    found = []
    position = 0
    while position < len(words):
        name = spelled(words[position])
        known = flags.get(name)
        rest = words[position + 1 :]
        has_value = bool(rest) and (known.takes_value if known else not rest[0].startswith("-"))
        found.append(ExtraFlag(name, known, position + 1 if has_value else None))
        position += 2 if has_value else 1
    return found


def spelled(word: str) -> str:
    """The engine reads `_` in long flags as `-`."""
    return word.replace("_", "-") if word.startswith("--") else word


def is_allowed(name: str) -> bool:
    """Whether a profile may add this flag."""
    return name in FILE_VALUED or any(name in names for names in ALLOWED.values())


def refusal(name: str) -> str:
    """Why a profile may not add this flag, and what says the same."""
    if field := OWNED_BY_FIELD.get(name):
        kind = "the setting" if field.startswith("PACELINE_") else "the profile's"
        return f"Paceline sets it from {kind} {field}"
    if name in _GRAMMARS:
        return (
            "a grammar that the engine cannot read ends the server while it loads, and one that it can is forced on "
            "every answer; a request takes its own as `grammar` or `response_format`"
        )
    if name in _TWO_VALUES:
        return "it takes two values; without it a control vector works on every layer that it has a direction for"
    if _matches(name, _OPENS_MACHINE):
        return "it opens files, programs or the network of this machine to requests"
    if _matches(name, _PACELINE):
        return "Paceline decides how the server is reached and watched"
    return "it is not among the flags that a profile may add (the user guide lists them)"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file in the value of a flag that takes several; `scale` is as it was written, None where it has none."""

    path: str
    scale: str | None = None


def file_entries(name: str, value: str) -> list[FileEntry]:
    """The files that an adapter flag names. Raises ValueError, with what is wrong, where the engine would not load."""
    if '"' in value:
        raise ValueError("a file name with a quotation mark in it cannot be told to the engine")
    entries = []
    for text in value.split(","):
        path, divider, scale = text.rpartition(_SCALE_DIVIDER) if name.endswith(_SCALED) else (text, "", "")
        if name.endswith(_SCALED):
            if not divider or _SCALE_DIVIDER in path or not _is_number(scale):
                raise ValueError(f"expected FILE:SCALE, saw {text!r}")
            entries.append(FileEntry(path, scale))
        else:
            entries.append(FileEntry(path))
        if not entries[-1].path:
            raise ValueError("one of its files has no name")
    return entries


def joined_entries(name: str, entries: Sequence[FileEntry]) -> str:
    """The value that says these files. Raises ValueError where a path holds what the engine would divide it by."""
    dividers = _DIVIDERS + (_SCALE_DIVIDER if name.endswith(_SCALED) else "")
    for entry in entries:
        if found := [mark for mark in dividers if mark in entry.path]:
            raise ValueError(f"the engine would divide {entry.path!r} at {found[0]!r}: rename the file or its folder")
    return ",".join(entry.path if entry.scale is None else f"{entry.path}:{entry.scale}" for entry in entries)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _matches(name: str, entries: Sequence[str]) -> bool:
    return any(name == entry or (entry.endswith("-") and name.startswith(entry)) for entry in entries)
