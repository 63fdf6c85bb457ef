"""What people write in llama-server command lines: old names, flags without a value, what Paceline decides. Tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.llama_server.extra_args import ALLOWED, OWNED_BY_FIELD, PATH_VALUED


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _by_flag(table: Mapping[str, str]) -> dict[str, str]:
    return {flag: reason for flags, reason in table.items() for flag in flags.split()}


# Every other flag that is known here takes one value.
SWITCHES: Final = frozenset(
    _words(
        "-h --help --usage --version -cl --cache-list --completion-bash --swa-full --perf --no-perf -e --escape "
        "--no-escape -kvo --kv-offload -nkvo --no-kv-offload --repack -nr --no-repack --no-host --list-devices -cmoe "
        "--cpu-moe --check-tensors --op-offload --no-op-offload --log-disable --log-jsonl --no-log-jsonl -v --verbose "
        "--log-verbose --offline --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --ignore-eos -bs "
        "--backend-sampling --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling "
        "--no-spec-draft-backend-sampling -kvu --kv-unified -no-kvu --no-kv-unified --cache-idle-slots "
        "--no-cache-idle-slots --context-shift --no-context-shift -sp --special --warmup --no-warmup --spm-infill -cb "
        "--cont-batching -nocb --no-cont-batching --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload "
        "--no-mmproj-offload --reuse-port --cors-credentials --no-cors-credentials --ui-mcp-proxy --webui-mcp-proxy "
        "--no-ui-mcp-proxy --no-webui-mcp-proxy -ag --agent -no-ag --no-agent --ui --webui --no-ui --no-webui "
        "--embedding --embeddings --rerank --reranking --cache-prompt --no-cache-prompt --metrics --props --slots "
        "--no-slots --models-autoload --no-models-autoload --jinja --no-jinja --reasoning-preserve "
        "--no-reasoning-preserve --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant "
        "--lora-init-without-apply --spec-default --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default "
        "--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default "
        "--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default --mlock --mmap --no-mmap -dio "
        "--direct-io -ndio --no-direct-io --slots-endpoint-disable --memory-f32 --memory-f16 -nommq --no-mul-mat-q "
        "--chatml -cml -cnv"
    )
)
TWO_VALUES: Final = frozenset({"--control-vector-layer-range"})
# Older builds took these without a value.
OPTIONAL_VALUE: Final = frozenset(_words("-fa --flash-attn --log-colors"))
# Their values are not repeated in a note.
SECRET: Final = frozenset(_words("--api-key -hft --hf-token"))
# Said twice they add up instead of the last one counting.
ACCUMULATING: Final = frozenset(
    _words(
        "-l --logit-bias --dry-sequence-breaker --lora --lora-scaled --control-vector --control-vector-scaled -ot "
        "--override-tensor -a --alias --spec-type"
    )
)


@dataclass(frozen=True, slots=True)
class OldName:
    """The flag that says the same today. `existed` is False for a name that no build ever took."""

    today: str
    existed: bool = True


OLD_NAMES: Final[dict[str, OldName]] = {
    **dict.fromkeys(_words("--draft --draft-n --draft-max"), OldName("--spec-draft-n-max")),
    **dict.fromkeys(_words("--draft-min --draft-n-min"), OldName("--spec-draft-n-min")),
    **dict.fromkeys(_words("--draft-n-max --spec-draft-max"), OldName("--spec-draft-n-max", existed=False)),
    **dict.fromkeys(_words("--spec-draft-min"), OldName("--spec-draft-n-min", existed=False)),
    "--spec-draft-conf-min": OldName("--spec-draft-p-min", existed=False),
    **dict.fromkeys(_words("--draft-model --spec-model"), OldName("--spec-draft-model", existed=False)),
    "--draft-device": OldName("--spec-draft-device", existed=False),
    **dict.fromkeys(_words("--draft-ngl --draft-gpu-layers"), OldName("--spec-draft-ngl", existed=False)),
    **dict.fromkeys(_words("--context-size --n-ctx"), OldName("--ctx-size", existed=False)),
}
# The kinds of n-gram setting that had one flag for all methods; the part of `speculation.ngram` each is now.
OLD_NGRAM: Final = {
    "--spec-ngram-size-n": "match_length",
    "--spec-ngram-size-m": "draft_length_max",
    "--spec-ngram-min-hits": "min_hits",
}
NGRAM: Final[dict[str, tuple[str, str]]] = {
    "--spec-ngram-mod-n-match": ("ngram-mod", "match_length"),
    "--spec-ngram-mod-n-min": ("ngram-mod", "draft_length_min"),
    "--spec-ngram-mod-n-max": ("ngram-mod", "draft_length_max"),
    **{
        f"--spec-{method}-{flag}": (method, part)
        for method in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        for flag, part in (("size-n", "match_length"), ("size-m", "draft_length_max"), ("min-hits", "min_hits"))
    },
}
# One flag says today how a file is loaded: see `load_mode`.
LOADING: Final = frozenset(_words("--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io"))

REMOVED: Final = _by_flag(
    {
        "-cd --ctx-size-draft": "a draft has the context of its target",
        "-dt --defrag-thold": "the cache needs no defragmentation any more",
        "-gan --grp-attn-n -gaw --grp-attn-w": "self-extend is gone; `--rope-scaling yarn` stretches a context",
        "--slots-endpoint-disable": "Paceline reads /slots, and nobody else reaches it",
        "--log-format": "the engine writes one format",
        "-spf --system-prompt-file": "requests bring their system prompt",
        "--memory-f16 --memory-f32": "`-ctk` and `-ctv` say the types of the cache",
        "-nommq --no-mul-mat-q": "the engine chooses its kernels",
        "-cml --chatml": "the template comes with the model",
        "-cnv": "a server has no conversation mode",
    }
)
DROPPED: Final = _by_flag(
    {
        "--host --port --reuse-port": "each engine listens on a private socket; clients ask Paceline, whose address "
        "PACELINE_HOST and PACELINE_PORT say",
        "--api-key --api-key-file": "each engine gets a random key of its own; PACELINE_ADMIN_KEY is what clients show",
        "--ssl-key-file --ssl-cert-file": "nothing but Paceline talks to the engine; put TLS in front of Paceline",
        "--api-prefix --cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials": "pages "
        "and prefixes meet Paceline, not the engine",
        "--metrics": "always on: Paceline watches the engine by it",
        "--slots --no-slots": "always on: only /slots tells whether speculation really runs",
        "--props": "settings change by a new revision of the profile",
        "--log-disable --log-jsonl --no-log-jsonl --log-colors --log-prefix --no-log-prefix --log-timestamps "
        "--no-log-timestamps": "Paceline reads the engine's log and keeps it: `paceline logs`",
        "-lv --verbosity --log-verbosity -v --verbose --log-verbose": "4 in any case: Paceline reads where everything "
        "went, and from 5 on the log would hold texts of prompts and answers",
        "--offline": "an engine of Paceline downloads nothing",
        "--ui --webui --no-ui --no-webui --ui-config --webui-config": "the engine's own page is not what clients see",
        "--no-agent -no-ag --no-ui-mcp-proxy --no-webui-mcp-proxy --no-models-autoload": "off in any case",
        "--mmproj-auto --no-mmproj-auto --no-mmproj": "a projector is used where the profile names one, and only there",
        "-hft --hf-token": "Paceline downloads nothing",
        "-h --help --usage --version --list-devices -cl --cache-list --completion-bash": "it prints and ends; "
        "`paceline status` and `paceline devices` show it",
    }
)
DOWNLOADS: Final = frozenset(
    _words(
        "-hf -hfr --hf-repo -hff --hf-file -mu --model-url -dr --docker-repo -hfd -hfrd --hf-repo-draft "
        "--spec-draft-hf -mmu --mmproj-url --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default "
        "--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default "
        "--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default"
    )
)
# Known to the engine and to no profile; what Paceline says of them is `extra_args.refusal`.
_OTHERS = _words(
    "--perf --no-perf -e --escape --no-escape --override-kv "
    "--control-vector-layer-range --lora-init-without-apply -otd --override-tensor-draft --spec-draft-override-tensor "
    "-r --reverse-prompt -cms --checkpoint-min-step -mmdev --mmproj-device --reasoning-effort --tools --slot-save-path "
    "--media-path --path --models-dir --models-preset --models-max --log-file --log-prompts-dir --spec-synth-len "
    "--spec-synth-rates"
)
KNOWN: Final = frozenset(
    {flag for flags in ALLOWED.values() for flag in flags}.union(
        PATH_VALUED,
        OWNED_BY_FIELD,
        SWITCHES,
        OLD_NAMES,
        OLD_NGRAM,
        NGRAM,
        REMOVED,
        DROPPED,
        DOWNLOADS,
        ("--tags",),
        _OTHERS,
    )
)


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return {f"LLAMA_ARG_{name}": flag for name, flag in zip(words[::2], words[1::2], strict=True)}


# Variables that the engine reads as flags, before the command line.
VARIABLES: Final = {
    "LLAMA_API_KEY": "--api-key",
    "HF_TOKEN": "--hf-token",
    **_pairs(
        "THREADS --threads CTX_SIZE --ctx-size N_PREDICT --n-predict BATCH --batch-size UBATCH --ubatch-size "
        "SWA_FULL --swa-full FLASH_ATTN --flash-attn ROPE_SCALING_TYPE --rope-scaling ROPE_SCALE --rope-scale "
        "ROPE_FREQ_BASE --rope-freq-base ROPE_FREQ_SCALE --rope-freq-scale YARN_ORIG_CTX --yarn-orig-ctx "
        "YARN_EXT_FACTOR --yarn-ext-factor YARN_ATTN_FACTOR --yarn-attn-factor YARN_BETA_SLOW --yarn-beta-slow "
        "YARN_BETA_FAST --yarn-beta-fast KV_OFFLOAD --kv-offload REPACK --repack NO_HOST --no-host "
        "CACHE_TYPE_K --cache-type-k CACHE_TYPE_V --cache-type-v RPC --rpc LOAD_MODE --load-mode "
        "LAZY_MODE --lazy-mode NUMA --numa DEVICE --device OVERRIDE_TENSOR --override-tensor CPU_MOE --cpu-moe "
        "N_CPU_MOE --n-cpu-moe N_CPU_FFN --n-cpu-ffn N_GPU_LAYERS --n-gpu-layers SPLIT_MODE --split-mode "
        "TENSOR_SPLIT --tensor-split MAIN_GPU --main-gpu FIT --fit FIT_TARGET --fit-target FIT_CTX --fit-ctx "
        "MODEL --model MODEL_URL --model-url HF_REPO --hf-repo HF_FILE --hf-file DOCKER_REPO --docker-repo "
        "LOG_VERBOSITY --log-verbosity SPEC_DRAFT_CACHE_TYPE_K --spec-draft-type-k "
        "SPEC_DRAFT_CACHE_TYPE_V --spec-draft-type-v TEMPERATURE --temperature TOP_K --top-k TOP_P --top-p "
        "MIN_P --min-p REPEAT_PENALTY --repeat-penalty PRESENCE_PENALTY --presence-penalty "
        "FREQUENCY_PENALTY --frequency-penalty BACKEND_SAMPLING --backend-sampling "
        "SPEC_DRAFT_CPU_MOE --spec-draft-cpu-moe SPEC_DRAFT_N_CPU_MOE --spec-draft-n-cpu-moe "
        "SPEC_DRAFT_N_MAX --spec-draft-n-max SPEC_DRAFT_N_MIN --spec-draft-n-min "
        "SPEC_DRAFT_P_SPLIT --spec-draft-p-split SPEC_DRAFT_P_MIN --spec-draft-p-min "
        "SPEC_DRAFT_BACKEND_SAMPLING --spec-draft-backend-sampling SPEC_DRAFT_SAMPLING --spec-draft-sampling "
        "N_GPU_LAYERS_DRAFT --spec-draft-ngl SPEC_DRAFT_MODEL --spec-draft-model "
        "SPEC_DRAFT_HF_REPO --spec-draft-hf SPEC_TYPE --spec-type KV_UNIFIED_PER_SLOT --kv-unified-per-slot "
        "CTX_CHECKPOINTS --ctx-checkpoints CACHE_RAM --cache-ram KV_UNIFIED --kv-unified "
        "CACHE_IDLE_SLOTS --cache-idle-slots CONTEXT_SHIFT --context-shift POOLING --pooling N_PARALLEL --parallel "
        "CONT_BATCHING --cont-batching MMPROJ --mmproj MMPROJ_URL --mmproj-url MMPROJ_AUTO --mmproj-auto "
        "MMPROJ_OFFLOAD --mmproj-offload IMAGE_MIN_TOKENS --image-min-tokens IMAGE_MAX_TOKENS --image-max-tokens "
        "ALIAS --alias TAGS --tags EMBEDDINGS --embeddings RERANKING --reranking "
        "CHAT_TEMPLATE_KWARGS --chat-template-kwargs TIMEOUT --timeout SSE_PING_INTERVAL --sse-ping-interval "
        "THREADS_HTTP --threads-http CACHE_PROMPT --cache-prompt CACHE_REUSE --cache-reuse JINJA --jinja "
        "THINK --reasoning-format REASONING --reasoning THINK_BUDGET --reasoning-budget "
        "THINK_BUDGET_MESSAGE --reasoning-budget-message REASONING_PRESERVE --reasoning-preserve "
        "CHAT_TEMPLATE --chat-template CHAT_TEMPLATE_FILE --chat-template-file "
        "SKIP_CHAT_PARSING --skip-chat-parsing PREFILL_ASSISTANT --prefill-assistant HOST --host PORT --port "
        "REUSE_PORT --reuse-port API_PREFIX --api-prefix API_KEY_FILE --api-key-file SSL_KEY_FILE --ssl-key-file "
        "SSL_CERT_FILE --ssl-cert-file ENDPOINT_METRICS --metrics ENDPOINT_PROPS --props ENDPOINT_SLOTS --slots "
        "LOG_FILE --log-file LOG_JSONL --log-jsonl LOG_COLORS --log-colors LOG_PREFIX --log-prefix "
        "LOG_TIMESTAMPS --log-timestamps OFFLINE --offline UI --ui TOOLS --tools"
    ),
}
# Set at all, they end every start of today's engine, whatever the command line says.
FATAL_VARIABLES: Final = {
    "LLAMA_ARG_DRAFT_MAX": "LLAMA_ARG_SPEC_DRAFT_N_MAX",
    "LLAMA_ARG_DRAFT_MIN": "LLAMA_ARG_SPEC_DRAFT_N_MIN",
}
