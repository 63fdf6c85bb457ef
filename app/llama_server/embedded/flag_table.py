"""The whole flag table, and what of llama-server's command line is refused."""

from app.llama_server.embedded.chat_flags import CHAT_FLAGS
from app.llama_server.embedded.flag import Flag, Refused
from app.llama_server.embedded.model_flags import (
    ADAPTER_FLAGS,
    CONTEXT_FLAGS,
    PLACEMENT_FLAGS,
    THREAD_FLAGS,
)
from app.llama_server.embedded.sampling_flags import SAMPLING_FLAGS
from app.llama_server.embedded.server_flags import ADDRESS_FLAGS, ENDPOINT_FLAGS, SLOT_FLAGS
from app.llama_server.embedded.speculative_flags import DRAFT_FLAGS, NGRAM_FLAGS

FLAGS_BY_TITLE: dict[str, tuple[Flag, ...]] = {
    "common params": (*CONTEXT_FLAGS, *THREAD_FLAGS, *PLACEMENT_FLAGS, *ADAPTER_FLAGS),
    "sampling params": SAMPLING_FLAGS,
    "speculative params": (*DRAFT_FLAGS, *NGRAM_FLAGS),
    "server params": (*ADDRESS_FLAGS, *ENDPOINT_FLAGS, *SLOT_FLAGS, *CHAT_FLAGS),
}

FLAGS: tuple[Flag, ...] = tuple(flag for rows in FLAGS_BY_TITLE.values() for flag in rows)

_DOWNLOADS = "it loads local files only; download the model and name it with --model"
_HIDDEN = "the package does not expose this setting"
_LOGGER = "the package does not expose the engine's logger; the log goes to stderr"
_ROUTER = "it serves one model and never becomes a router"
_TOOLS = "an engine behind Paceline runs no tools"
_RENAMED = "llama-server removed it; use {}"

REFUSED: tuple[Refused, ...] = (
    Refused(("-dev", "--device"), "the package has no choice of devices for the target; hide "
            "devices with CUDA_VISIBLE_DEVICES, or place with --split-mode none --main-gpu"),
    Refused(("--rpc",), "the package is built without RPC"),
    Refused(("--override-kv",), _HIDDEN),
    Refused(("--control-vector", "--control-vector-scaled", "--control-vector-layer-range"),
            _HIDDEN),
    Refused(("-l", "--logit-bias", "--dry-sequence-breaker", "--top-nsigma", "--top-n-sigma"),
            _HIDDEN + "; give it with each request"),
    Refused(("-e", "--escape", "--no-escape", "--spm-infill", "-dt", "--defrag-thold"), _HIDDEN),
    Refused(("-C", "--cpu-mask", "-Cr", "--cpu-range", "-Cb", "--cpu-mask-batch", "-Crb",
             "--cpu-range-batch", "--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft",
             "--spec-draft-cpu-range", "-Crd", "--cpu-range-draft", "--spec-draft-cpu-mask-batch",
             "-Cbd", "--cpu-mask-batch-draft"), "start it under taskset instead"),
    Refused(("-mu", "--model-url", "-dr", "--docker-repo", "-hf", "-hfr", "--hf-repo", "-hff",
             "--hf-file", "-hft",
             "--hf-token", "--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft", "-mmu",
             "--mmproj-url", "--mmproj-auto", "--no-mmproj", "--no-mmproj-auto", "-cl",
             "--cache-list", "--offline", "--embd-gemma-default", "--fim-qwen-1.5b-default",
             "--fim-qwen-3b-default", "--fim-qwen-7b-default", "--fim-qwen-7b-spec",
             "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default",
             "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default"),
            _DOWNLOADS),
    Refused(("--log-disable", "--log-file", "--log-jsonl", "--no-log-jsonl", "--log-colors",
             "--log-prefix", "--no-log-prefix", "--log-timestamps", "--no-log-timestamps"),
            _LOGGER),
    Refused(("--models-dir", "--models-preset", "--models-max", "--models-autoload",
             "--no-models-autoload"), _ROUTER),
    Refused(("--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json", "-ag",
             "--agent", "-no-ag", "--no-agent", "--ui-mcp-proxy", "--webui-mcp-proxy",
             "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"), _TOOLS),
    Refused(("--ui-config-file", "--webui-config-file"), "give the settings with --ui-config"),
    Refused(("--ssl-key-file", "--ssl-cert-file"), "an engine behind Paceline speaks plain HTTP"),
    Refused(("--completion-bash",), "it has no completion script"),
    Refused(("--draft", "--draft-n", "--draft-max"), _RENAMED.format("--spec-draft-n-max")),
    Refused(("--draft-min", "--draft-n-min"), _RENAMED.format("--spec-draft-n-min")),
    Refused(("--spec-ngram-size-n",), _RENAMED.format("--spec-ngram-*-size-n")),
    Refused(("--spec-ngram-size-m",), _RENAMED.format("--spec-ngram-*-size-m")),
    Refused(("--spec-ngram-min-hits",), _RENAMED.format("--spec-ngram-*-min-hits")),
)  # fmt: skip
