"""Rows of the flag table: context, batches, threads, RoPE, loading, placement, projector, LoRA."""

import importlib

from app.llama_server.embedded.flag import Effect, Flag, Log, NoLog, OnlyParams, Params, ValueRejected
from app.llama_server.embedded.overrides import (
    all_experts,
    dense_layer_overrides,
    expert_layer_overrides,
    joined,
)
from app.llama_server.embedded.values import (
    MIB,
    added,
    at,
    integer,
    layers,
    listed,
    member,
    number,
    numbers,
    switch,
    threads,
)

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_NO_DEVICE = "needs a GPU: a processor alone neither offloads nor reports it"
_NO_PROJECTOR = "needs a projector file, and no tiny one exists"

read_cache_type = member("ggml_type", "GGML_TYPE_", {word: word.upper() for word in CACHE_TYPES})
read_priority = member(
    "ggml_sched_priority",
    "GGML_SCHED_PRIO_",
    {"-1": "LOW", "0": "NORMAL", "1": "MEDIUM", "2": "HIGH", "3": "REALTIME"},
)
read_raised_priority = member(
    "ggml_sched_priority", "GGML_SCHED_PRIO_", {"0": "NORMAL", "1": "MEDIUM", "2": "HIGH", "3": "REALTIME"}
)


def _put_context(params: Params, size: int) -> None:
    """An explicit 0 is the whole context of the model, which fitting must not make smaller."""
    params.n_ctx = size
    if size == 0:
        params.fit_params_min_ctx = -1  # the package's int for the engine's largest unsigned


def _put_tensor_split(params: Params, shares: list[float]) -> None:
    most = len(params.tensor_split)
    if len(shares) > most:
        raise ValueRejected(f"got {len(shares)} proportions, but the package holds {most} devices")
    params.tensor_split = shares + [0.0] * (most - len(shares))


def _put_fit_target(params: Params, margins_mib: list[float]) -> None:
    """One margin is for all devices; several are for the first ones."""
    present = params.fit_params_target
    margins = [int(margin) * MIB for margin in margins_mib]
    if len(margins) > len(present):
        raise ValueRejected(f"got {len(margins)} margins, but the package holds {len(present)}")
    if len(margins) == 1:
        margins *= len(present)
    params.fit_params_target = margins + present[len(margins) :]


def _put_rope_scale(params: Params, factor: float) -> None:
    params.rope_freq_scale = 1.0 / factor


def _read_lora_scaled(text: str) -> list[tuple[str, float]]:
    pairs = [part.rsplit(":", 1) for part in listed(text)]
    return [(path, float(scale)) for path, scale in pairs]


def _put_lora(params: Params, adapters: list[tuple[str, float]]) -> None:
    adapter = importlib.import_module("xllamacpp").CommonAdapterLoraInfo
    added("lora_adapters")(params, [adapter(path, scale) for path, scale in adapters])


CONTEXT_FLAGS = (
    Flag(("-c", "--ctx-size"), "context of all slots together (default: 0, the model's)",
         _put_context, ("-c", "768"), Log(r"llama_context: n_ctx +=  ?768\b"), value="N",
         read=integer(0)),
    Flag(("-n", "--predict", "--n-predict"), "most tokens of an answer (default: -1, no limit)",
         at("n_predict"), ("-n", "5"), Effect("stops after n tokens"), value="N",
         read=integer(-1), launch="hidden"),
    Flag(("-b", "--batch-size"), "logical batch (default: 2048)", at("n_batch"), ("-b", "128"),
         Log(r"n_batch +=  ?128\b"), value="N", read=integer(1)),
    Flag(("-ub", "--ubatch-size"), "physical batch (default: 512)", at("n_ubatch"), ("-ub", "64"),
         Log(r"n_ubatch +=  ?64\b"), value="N", read=integer(1)),
    Flag(("--keep",), "tokens of the prompt that a context shift keeps (default: 0, -1 for all)",
         at("n_keep"), ("--keep", "4"), Log(r"n_keep = 4\b"), value="N", read=integer(-1)),
    Flag(("--swa-full",), "full-size cache for sliding-window layers (default: no)",
         at("swa_full"), ("--swa-full",), Log(r"swa_full is not supported by this model")),
    Flag(("-fa", "--flash-attn"), "flash attention: on, off or auto (default: auto)",
         at("flash_attn_type"), ("-fa", "off"), Log(r"flash_attn += disabled"),
         value="[on|off|auto]",
         read=member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_",
                     {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"})),
    Flag(("-ctk", "--cache-type-k"), f"type of K in the cache: {', '.join(CACHE_TYPES)} "
         "(default: f16)", at("cache_type_k"), ("-ctk", "q8_0"), Log(r"K \(q8_0\)"), value="TYPE",
         read=read_cache_type),
    Flag(("-ctv", "--cache-type-v"), f"type of V in the cache: {', '.join(CACHE_TYPES)} "
         "(default: f16)", at("cache_type_v"), ("-ctv", "bf16"), Log(r"V \(bf16\)"), value="TYPE",
         read=read_cache_type),
    Flag(("--rope-scaling",), "how RoPE frequencies are scaled (default: as the model says)",
         at("rope_scaling_type"), ("--rope-scaling", "yarn"), Log(r"custom YaRN scaling detected"),
         value="{none,linear,yarn}", launch="rope",
         read=member("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_",
                     {"none": "NONE", "linear": "LINEAR", "yarn": "YARN"})),
    Flag(("--rope-scale",), "factor by which the context grows", _put_rope_scale,
         ("--rope-scale", "4"), Log(r"freq_scale += 0\.25"), value="N", read=number(1e-6),
         launch="rope"),
    Flag(("--rope-freq-base",), "RoPE base frequency (default: the model's)",
         at("rope_freq_base"), ("--rope-freq-base", "5000"), Log(r"freq_base += 5000\.0"),
         value="N", read=number(0.0), launch="rope"),
    Flag(("--rope-freq-scale",), "RoPE frequency factor, context grows by 1/N",
         at("rope_freq_scale"), ("--rope-freq-scale", "0.5"), Log(r"freq_scale += 0\.5"),
         value="N", read=number(0.0)),
    *(Flag((f"--yarn-{name}",), meaning, at(f"yarn_{field}"), (f"--yarn-{name}", example),
           OnlyParams("the log says only that YaRN is used, not its figures"), value="N",
           read=number(), launch="rope")
      for name, field, meaning, example in (
          ("ext-factor", "ext_factor", "YaRN extrapolation (default: the model's)", "0.5"),
          ("attn-factor", "attn_factor", "YaRN attention magnitude", "1.5"),
          ("beta-slow", "beta_slow", "YaRN high correction", "2"),
          ("beta-fast", "beta_fast", "YaRN low correction", "16"))),
    Flag(("--yarn-orig-ctx",), "YaRN original context (default: 0, the model's)",
         at("yarn_orig_ctx"), ("--yarn-orig-ctx", "1024"),
         OnlyParams("the log says only that YaRN is used, not its figures"), value="N",
         read=integer(0), launch="rope"),
)  # fmt: skip

THREAD_FLAGS = (
    Flag(("-t", "--threads"), "threads of generation (default: -1, by the processor)",
         at("cpuparams.n_threads"), ("-t", "2"), Log(r"n_threads = 2 "), value="N", read=threads, launch="threads"),
    Flag(("-tb", "--threads-batch"), "threads of prompt processing (default: as --threads)",
         at("cpuparams_batch.n_threads"), ("-tb", "2"), Log(r"n_threads_batch = 2\b"), value="N",
         read=threads, launch="threads"),
    *(Flag((name,), meaning, at(field), (name, example),
           OnlyParams("how the thread pool is scheduled is not reported"), value="N", read=read)
      for name, meaning, field, example, read in (
          ("--prio", "priority of threads, -1 to 3 (default: 0)", "cpuparams.priority", "-1",
           read_priority),
          ("--prio-batch", "priority in prompt processing, 0 to 3", "cpuparams_batch.priority", "1",
           read_raised_priority),
          ("--poll", "polling level, 0 to 100 (default: 50)", "cpuparams.poll", "3",
           integer(0, 100)),
          ("--poll-batch", "polling level in prompt processing", "cpuparams_batch.poll", "3",
           integer(0, 100)),
          ("--cpu-strict", "strict placement on processors, 0 or 1", "cpuparams.strict_cpu", "1",
           switch),
          ("--cpu-strict-batch", "the same in prompt processing", "cpuparams_batch.strict_cpu",
           "1", switch))),
    Flag(("--numa",), "NUMA strategy", at("numa"), ("--numa", "distribute"),
         OnlyParams("says nothing on a host with one node"), value="{distribute,isolate,numactl}",
         read=member("ggml_numa_strategy", "GGML_NUMA_STRATEGY_",
                     {"distribute": "DISTRIBUTE", "isolate": "ISOLATE", "numactl": "NUMACTL"})),
    Flag(("--perf",), "keep the engine's own timings (default: no)", at("no_perf", negated=True),
         ("--no-perf",), OnlyParams("the server takes its own timings"), off=("--no-perf",)),
)  # fmt: skip

PLACEMENT_FLAGS = (
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), "layers on devices: a number, auto or all "
         "(default: auto)", at("n_gpu_layers"), ("-ngl", "all"), OnlyParams(_NO_DEVICE),
         value="N", read=layers),
    Flag(("-sm", "--split-mode"), "how devices share the model (default: layer)",
         at("split_mode"), ("-sm", "none"), OnlyParams(_NO_DEVICE),
         value="{none,layer,row,tensor}",
         read=member("llama_split_mode", "LLAMA_SPLIT_MODE_",
                     {word: word.upper() for word in ("none", "layer", "row", "tensor")})),
    Flag(("-ts", "--tensor-split"), "proportions of the devices", _put_tensor_split,
         ("-ts", "3,1"), OnlyParams(_NO_DEVICE), value="N0,N1,N2,...", read=numbers),
    Flag(("-mg", "--main-gpu"), "device of split mode none (default: 0)", at("main_gpu"),
         ("-mg", "1"), OnlyParams(_NO_DEVICE), value="INDEX", read=integer()),
    Flag(("-ot", "--override-tensor"), "buffer type of the tensors that a pattern finds",
         joined("tensor_buft_overrides"), ("-ot", r"attn_norm=CPU,blk\.2\.ffn_norm=CPU"),
         Log(r"tensor blk\.2\.ffn_norm\.weight .*overridden to CPU"),
         value="<tensor name pattern>=<buffer type>,...", launch="moe"),
    Flag(("-cmoe", "--cpu-moe"), "experts of all layers in host memory",
         all_experts("tensor_buft_overrides"), ("-cmoe",),
         Log(r"tensor blk\.2\.ffn_up_exps\.weight .*overridden to CPU"), launch="all-experts"),
    Flag(("-ncmoe", "--n-cpu-moe"), "experts of the first N layers in host memory",
         lambda params, count: joined("tensor_buft_overrides")(
             params, expert_layer_overrides(count)),
         ("-ncmoe", "2"), Log(r"tensor blk\.1\.ffn_up_exps\.weight .*overridden to CPU"),
         value="N", read=integer(0), launch="moe"),
    Flag(("-ncffn", "--n-cpu-ffn"), "dense feed-forward weights of the first N layers in host "
         "memory",
         lambda params, count: joined("tensor_buft_overrides")(
             params, dense_layer_overrides(count)),
         ("-ncffn", "1"), Log(r"tensor blk\.0\.ffn_up\.weight .*overridden to CPU"), value="N",
         read=integer(0)),
    Flag(("-fit", "--fit"), "change what is not given so that it fits (default: on)",
         at("fit_params"), ("-fit", "off"), NoLog(r"fit"), value="[on|off]", read=switch),
    Flag(("-fitt", "--fit-target"), "MiB left free by fitting, for all devices or for each "
         "(default: 1024)", _put_fit_target, ("-fitt", "77"), OnlyParams(_NO_DEVICE),
         value="MiB0,MiB1,MiB2,...", read=numbers),
    Flag(("-fitc", "--fit-ctx"), "least context that fitting may set (default: 4096)",
         at("fit_params_min_ctx"), ("-fitc", "512"), OnlyParams(_NO_DEVICE), value="N",
         read=integer(0)),
    Flag(("-kvo", "--kv-offload"), "KV cache on devices (default: yes)",
         at("no_kv_offload", negated=True), ("-nkvo",), OnlyParams(_NO_DEVICE),
         off=("-nkvo", "--no-kv-offload")),
    Flag(("--op-offload",), "host tensors' operations on devices (default: yes)",
         at("no_op_offload", negated=True), ("--no-op-offload",), OnlyParams(_NO_DEVICE),
         off=("--no-op-offload",)),
    Flag(("--repack",), "repack weights for the processor (default: yes)",
         at("no_extra_bufts", negated=True), ("--no-repack",),
         OnlyParams("only quantised weights are repacked"), off=("-nr", "--no-repack")),
    Flag(("--no-host",), "pass over the host buffer", at("no_host"), ("--no-host",),
         OnlyParams(_NO_DEVICE)),
    Flag(("--moe-cache-mib",), "MiB of device memory that caches experts of the host "
         "(default: 0)", at("moe_cache_size", scale=MIB), ("--moe-cache-mib", "1"),
         Effect("refuses a MoE cache without a GPU"), value="N", read=integer(0),
         launch="moe-cache"),
    Flag(("-lm", "--load-mode"), "how the file is read (default: auto)", at("load_mode"),
         ("-lm", "dio"), Log(r"load_mode = dio"), value="{auto,none,mmap,mlock,mmap+mlock,dio}",
         read=member("llama_load_mode", "LLAMA_LOAD_MODE_",
                     {"auto": "AUTO", "none": "NONE", "mmap": "MMAP", "mlock": "MLOCK",
                      "mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO"})),
    Flag(("-lzm", "--lazy-mode"), "read some tensors on demand (default: auto)", at("lazy_mode"),
         ("-lzm", "off"), OnlyParams("only models with per-layer embeddings have such tensors"),
         value="{on,auto,off}",
         read=member("llama_lazy_mode", "LLAMA_LAZY_MODE_",
                     {"on": "ON", "auto": "AUTO", "off": "OFF"})),
    Flag(("--check-tensors",), "look for invalid values in tensors (default: no)",
         at("check_tensors"), ("--check-tensors",), Effect("refuses a tensor that is not a number"),
         launch="check"),
)  # fmt: skip

ADAPTER_FLAGS = (
    Flag(("--lora",), "LoRA adapters, comma-separated", _put_lora, ("--lora", "{lora}"),
         Effect("lists its adapters"), value="FNAME", launch="lora",
         read=lambda text: [(path, 1.0) for path in listed(text)]),
    Flag(("--lora-scaled",), "LoRA adapters with their scales", _put_lora,
         ("--lora-scaled", "{lora}:0.5"), Effect("lists its adapters"), value="FNAME:SCALE,...",
         read=_read_lora_scaled, launch="lora"),
    Flag(("--lora-init-without-apply",), "load adapters without applying them",
         at("lora_init_without_apply"), ("--lora-init-without-apply",),
         OnlyParams("llama-server, too, answers the same with it and without"), launch="lora"),
    Flag(("-mm", "--mmproj"), "projector file of a multimodal model", at("mmproj.path"),
         ("-mm", "{target}"), Effect("refuses a model as its projector"), value="FILE",
         launch="projector"),
    Flag(("--mmproj-offload",), "projector on a device (default: yes)", at("mmproj_use_gpu"),
         ("--no-mmproj-offload",), OnlyParams(_NO_PROJECTOR), off=("--no-mmproj-offload",)),
    Flag(("-mmdev", "--mmproj-device"), "device of the projector, none for the processor",
         at("mmproj_device"), ("-mmdev", "nowhere"), Effect("refuses an unknown device"), value="DEVICE",
         launch="unknown-device"),
    *(Flag((name,), meaning, at(field), (name, "9"), OnlyParams(_NO_PROJECTOR), value="N",
           read=integer(-1))
      for name, meaning, field in (
          ("--image-min-tokens", "least tokens of an image", "image_min_tokens"),
          ("--image-max-tokens", "most tokens of an image", "image_max_tokens"),
          ("--mtmd-batch-max-tokens", "image tokens in a batch (default: 1024)",
           "mtmd_batch_max_tokens"),
          ("--video-timestamp-interval", "milliseconds between timestamps (default: 5000)",
           "video_timestamp_interval_ms"))),
    Flag(("--video-fps",), "frames a second (default: 4)", at("video_fps"), ("--video-fps", "2"),
         OnlyParams(_NO_PROJECTOR), value="N", read=number(0.0)),
    Flag(("--video-ffmpeg-dir",), "folder of ffmpeg and ffprobe", at("video_ffmpeg_bin_dir"),
         ("--video-ffmpeg-dir", "{folder}"), OnlyParams(_NO_PROJECTOR), value="DIR"),
)  # fmt: skip
