"""Rows of the flag table: addresses, access, endpoints, slots, prompt cache and chat templates."""

import json
from pathlib import Path
from typing import Any

from app.llama_server.embedded.flag import (
    Effect,
    Flag,
    Log,
    Models,
    NoLog,
    OnlyParams,
    Params,
    Props,
    Slots,
    ValueRejected,
)
from app.llama_server.embedded.values import (
    added,
    always,
    at,
    file_text,
    integer,
    json_object,
    listed,
    member,
    number,
    together,
)

_POOLING = {word: word.upper() for word in ("none", "mean", "cls", "last", "rank")}
_VERBOSE = 2**31 - 1


def _put_aliases(params: Params, names: list[str]) -> None:
    params.model_alias = {*params.model_alias, *names}


def _put_tags(params: Params, names: list[str]) -> None:
    params.model_tags = {*params.model_tags, *names}


def _read_parallel(text: str) -> int:
    slots = integer(-1)(text)
    if slots == 0:
        raise ValueRejected("invalid value for n_parallel")
    return slots


def _read_key_file(text: str) -> list[str]:
    lines = (line.strip() for line in file_text(text).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _made_folder(text: str) -> str:
    Path(text).mkdir(parents=True, exist_ok=True)
    return text


def _put_rerank(params: Params, value: Any) -> None:
    at("pooling_type")(params, member("llama_pooling_type", "LLAMA_POOLING_TYPE_", _POOLING)("rank"))
    params.embedding = True


ADDRESS_FLAGS = (
    Flag(("-m", "--model"), "the GGUF file to load", at("model.path"), ("-m", "{target}"),
         Props("model_path", "{target}"), value="FNAME"),
    Flag(("-a", "--alias"), "names of the model in the API, comma-separated; the first in "
         "alphabetical order is its id", _put_aliases, ("-a", "zeta,alpha"), Models("id", "alpha"),
         value="STRING", read=listed),
    Flag(("--tags",), "tags of the model, comma-separated", _put_tags, ("--tags", "b,a"),
         Models("tags", ["a", "b"]), value="STRING", read=listed),
    Flag(("--host",), "IP addresses to listen on, comma-separated, or the path of a Unix socket "
         "ending in .sock (default: 127.0.0.1)", at("hostnames"), ("--host", "{folder}/engine.sock"),
         Effect("answers on a Unix socket"), value="HOST", read=listed, launch="unix"),
    Flag(("--port",), "TCP port to listen on, 0 for any free one (default: 8080)", at("port"),
         ("--port", "{port}"), Effect("answers on its port"), value="PORT", read=integer(0, 65535)),
    Flag(("--reuse-port",), "let several sockets listen on one port (default: no)",
         at("reuse_port"), ("--reuse-port",), Effect("shares its port"), launch="reuse"),
    Flag(("--path",), "folder of static files to serve", at("public_path"), ("--path", "{folder}"),
         Effect("serves static files"), value="PATH"),
    Flag(("--api-prefix",), "path before every route, without a slash at its end",
         at("api_prefix"), ("--api-prefix", "/below"), Effect("answers under the prefix"),
         value="PREFIX", launch="prefix"),
    Flag(("-to", "--timeout"), "seconds until a stalled read or write fails (default: 3600)",
         together(at("timeout_read"), at("timeout_write")), ("--timeout", "77"),
         OnlyParams("only a client that stalls for the whole time would show it"),
         value="N", read=integer(0)),
    Flag(("--sse-ping-interval",), "seconds between pings in a silent stream, -1 for none "
         "(default: 30)", at("sse_ping_interval"), ("--sse-ping-interval", "7"),
         OnlyParams("only a stream that is silent for seconds would show it"),
         value="N", read=integer(-1)),
    Flag(("--threads-http",), "threads that answer HTTP requests (default: -1, automatic)",
         at("n_threads_http"), ("--threads-http", "3"), Log(r"using 3 threads for HTTP server"),
         value="N", read=integer(-1)),
    Flag(("--api-key",), "keys that requests must carry, comma-separated (default: none) "
         "(env: LLAMA_API_KEY)", added("api_keys"), ("--api-key", "sesame"),
         Effect("refuses requests without the key"), value="KEY", read=listed, launch="key"),
    Flag(("--api-key-file",), "file of keys, one a line; a line that begins with # is a comment",
         added("api_keys"), ("--api-key-file", "{folder}/keys.txt"),
         Effect("accepts a key of the file"), value="FNAME", read=_read_key_file, launch="key"),
    Flag(("--cors-origins",), "origins that browsers may call from (default: *)",
         together(at("cors_origins"), always("cors_origins_explicit", True)),
         ("--cors-origins", "http://a.example"), Effect("names the allowed origin"),
         value="ORIGINS"),
    Flag(("--cors-methods",), "methods that browsers may use", at("cors_methods"),
         ("--cors-methods", "GET"), Effect("names the allowed methods"), value="METHODS"),
    Flag(("--cors-headers",), "headers that browsers may send (default: *)", at("cors_headers"),
         ("--cors-headers", "X-One"), Effect("names the allowed headers"), value="HEADERS"),
    Flag(("--cors-credentials",), "let browsers send credentials (default: yes)",
         at("cors_credentials"), ("--no-cors-credentials",), Effect("allows no credentials"),
         off=("--no-cors-credentials",)),
)  # fmt: skip

ENDPOINT_FLAGS = (
    Flag(("--metrics",), "answer GET /metrics (default: no)", at("endpoint_metrics"),
         ("--metrics",), Effect("answers metrics")),
    Flag(("--props",), "answer POST /props (default: no)", at("endpoint_props"), ("--props",),
         Props("endpoint_props", True)),
    Flag(("--slots",), "answer GET /slots (default: yes)", at("endpoint_slots"), ("--no-slots",),
         Effect("refuses slots"), off=("--no-slots",), launch="hidden"),
    Flag(("--ui", "--webui"), "serve the web page (default: yes)", at("ui"), ("--no-ui",),
         Props("ui", False), off=("--no-ui", "--no-webui"), launch="hidden"),
    Flag(("--ui-config", "--webui-config"), "JSON object of settings for the web page",
         at("ui_config_json"), ("--ui-config", '{"theme":"dark"}'),
         Props("ui_settings", {"theme": "dark"}), value="JSON",
         read=lambda text: json.dumps(json_object(text))),
    Flag(("--slot-save-path",), "folder to which slots may be saved", at("slot_save_path"),
         ("--slot-save-path", "{folder}/"), Effect("saves a slot"), value="PATH",
         read=lambda text: text if text.endswith("/") else text + "/"),
    Flag(("--media-path",), "folder of local files that requests may name", at("media_path"),
         ("--media-path", "{folder}/"),
         OnlyParams("only a model with a projector reads media, and no tiny one exists"),
         value="PATH", read=lambda text: text if text.endswith("/") else text + "/"),
    Flag(("--sleep-idle-seconds",), "unload after so many idle seconds (default: -1, never)",
         at("sleep_idle_seconds"), ("--sleep-idle-seconds", "1"), Effect("falls asleep"),
         value="SECONDS", read=integer(-1), launch="sleep"),
    Flag(("--embedding", "--embeddings"), "answer only embeddings (default: no)",
         at("embedding"), ("--embedding",), Log(r"embeddings enabled with n_batch"),
         launch="embedding"),
    Flag(("--rerank", "--reranking"), "answer reranking requests (default: no)", _put_rerank,
         ("--rerank",), Log(r"\[4\] was specified"), launch="rerank"),
    Flag(("--pooling",), "how embeddings are pooled (default: as the model says)",
         at("pooling_type"), ("--pooling", "mean"), Log(r"\[1\] was specified"),
         value="{none,mean,cls,last,rank}",
         read=member("llama_pooling_type", "LLAMA_POOLING_TYPE_", _POOLING), launch="embedding"),
    Flag(("--embd-normalize",), "norm of embeddings: -1 none, 0 largest int16, 1 taxicab, "
         "2 euclidean, more: p-norm (default: 2)", at("embd_normalize"), ("--embd-normalize", "1"),
         OnlyParams("only the native /embedding of programs reads it; requests carry their own"),
         value="N", read=integer(-1), launch="embedding"),
    Flag(("-v", "--verbose", "--log-verbose"), "log everything", always("verbosity", _VERBOSE),
         ("-v",), Log(r"verbosity = 2147483647"), launch="verbose"),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "log threshold: 0 output, 1 errors, "
         "2 warnings, 3 info, 4 trace, 5 debug (default: 3)", at("verbosity"), ("-lv", "4"),
         Log(r"verbosity = 4 "), value="N", read=integer(-1), launch="verbosity"),
    Flag(("--log-prompts-dir",), "folder in which prompts are logged", at("path_prompts_log_dir"),
         ("--log-prompts-dir", "{folder}/prompts"), Effect("logs prompts"), value="PATH",
         read=_made_folder),
)  # fmt: skip

SLOT_FLAGS = (
    Flag(("-np", "--parallel"), "slots: requests that run at once (default: -1, automatic: "
         "4 slots over one KV pool)", at("n_parallel"), ("-np", "3"), Props("total_slots", 3),
         value="N", read=_read_parallel),
    Flag(("-kvu", "--kv-unified"), "one KV pool shared by all slots (default: only if the number "
         "of slots is automatic)", at("kv_unified"), ("-kvu",), Log(r"kv_unified = 'true'"),
         off=("-no-kvu", "--no-kv-unified"), launch="unified"),
    Flag(("--kv-unified-per-slot",), "most context of one slot in the shared pool",
         at("kv_unified_per_slot"), ("--kv-unified-per-slot", "256"), Slots("n_ctx", 256),
         value="N", read=integer(0), launch="per-slot"),
    Flag(("-cb", "--cont-batching"), "batch requests continuously (default: yes)",
         at("cont_batching"), ("-nocb",), OnlyParams("the scheduling is not reported anywhere"),
         off=("-nocb", "--no-cont-batching")),
    Flag(("--warmup",), "run the model once before it is ready (default: yes)", at("warmup"),
         ("--no-warmup",), NoLog(r"warming up the model"), off=("--no-warmup",)),
    Flag(("-sps", "--slot-prompt-similarity"), "likeness of prompts from which a slot is reused "
         "(default: 0.1, 0 for never)", at("slot_prompt_similarity"), ("-sps", "0.25"),
         Log(r"> 0\.250"), value="SIMILARITY", read=number(0.0, 1.0)),
    Flag(("-cram", "--cache-ram"), "MiB of host memory for cached prompts (default: 8192, "
         "-1 for no limit, 0 for none)", at("cache_ram_mib"), ("-cram", "17"),
         Log(r"prompt cache is enabled, size limit: 17 MiB"), value="N", read=integer(-1)),
    Flag(("--cache-idle-slots",), "keep the prompts of idle slots in the prompt cache "
         "(default: yes)", at("cache_idle_slots"), ("--no-cache-idle-slots",),
         NoLog(r"idle slots will be saved"), off=("--no-cache-idle-slots",)),
    Flag(("--cache-prompt",), "reuse the common start of prompts (default: yes)",
         at("cache_prompt"), ("--no-cache-prompt",), Effect("caches no prompt"),
         off=("--no-cache-prompt",), launch="hidden"),
    Flag(("--cache-reuse",), "smallest chunk that is reused by shifting (default: 0, off)",
         at("n_cache_reuse"), ("--cache-reuse", "7"), Log(r"n_cache_reuse = 7|size > 7"),
         value="N", read=integer(0)),
    Flag(("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"), "context checkpoints of one slot "
         "(default: 32)", at("n_ctx_checkpoints"), ("-ctxcp", "9"),
         Log(r"context checkpoints enabled, max = 9,"), value="N", read=integer(0)),
    Flag(("-cms", "--checkpoint-min-step"), "tokens between context checkpoints "
         "(default: 8192, 0 for no least)", at("checkpoint_min_step"), ("-cms", "99"),
         Log(r"min spacing = 99"), value="N", read=integer(0)),
    Flag(("--context-shift",), "drop the oldest tokens when the context is full (default: no)",
         at("ctx_shift"), ("--context-shift",), Effect("shifts its context"),
         off=("--no-context-shift",), launch="shift"),
    Flag(("-sp", "--special"), "write special tokens (default: no)", at("special"), ("-sp",),
         Effect("writes special tokens"), launch="hidden"),
    Flag(("-r", "--reverse-prompt"), "text at which generation stops", added("antiprompt"),
         ("-r", "zzz"), Effect("stops at the reverse prompt"), value="PROMPT",
         read=lambda text: [text]),
)  # fmt: skip
