"""Rows of the flag table: the draft model and the methods of speculative decoding."""

from app.llama_server.embedded.flag import Effect, Flag, Generation, Log, OnlyParams, Params, ValueRejected
from app.llama_server.embedded.model_flags import CACHE_TYPES, read_cache_type, read_raised_priority
from app.llama_server.embedded.overrides import all_experts, expert_layer_overrides, joined
from app.llama_server.embedded.values import (
    Member,
    added,
    at,
    integer,
    layers,
    number,
    numbers,
    switch,
    threads,
    word,
)

SPEC_TYPES = (
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
_SCHEDULING = "how the thread pool is scheduled is not reported"
_DRAFT = "speculative.draft."


def _read_spec_types(text: str) -> list[str]:
    types = text.split(",")
    for name in types:
        if name not in SPEC_TYPES:
            raise ValueRejected(f"unknown speculative type: {name}")
    return types


def _put_spec_types(params: Params, types: list[str]) -> None:
    """Types add up over several flags; `none` among them wipes the list."""
    if "none" in types:
        params.speculative.types = [_spec_type("none")]
    else:
        added("speculative.types")(params, [_spec_type(name) for name in types])


def _spec_type(name: str) -> object:
    suffix = name.upper().replace("-", "_")
    return Member("common_speculative_type", f"COMMON_SPECULATIVE_TYPE_{suffix}").resolve()


def _put_default(params: Params, _: bool) -> None:
    """What llama-server calls its default: ngram-mod 24, 48 to 64."""
    _put_spec_types(params, ["ngram-mod"])
    ngram = params.speculative.ngram_mod
    ngram.n_match, ngram.n_min, ngram.n_max = 24, 48, 64


def _map_rows(kind: str, pattern: str) -> tuple[Flag, ...]:
    """The three rows of an n-gram map; all three figures come back in one log line."""
    field = f"speculative.{kind.replace('-', '_')}"
    return tuple(
        Flag((f"--spec-{kind}-{name}",), meaning, at(f"{field}.{part}"),
             (f"--spec-{kind}-{name}", example), Log(pattern), value="N", read=integer(1, 1024),
             launch="ngram")
        for name, part, meaning, example in (
            ("size-n", "size_n", f"length that {kind} looks up (default: 12)", "5"),
            ("size-m", "size_m", f"length that {kind} drafts (default: 48)", "7"),
            ("min-hits", "min_hits", f"hits before {kind} drafts (default: 1)", "2"))
    )  # fmt: skip


DRAFT_FLAGS = (
    Flag(("--spec-draft-model", "-md", "--model-draft"), "the draft model's GGUF file",
         at(_DRAFT + "mparams.path"), ("-md", "{draft}"), Log(r"loading draft model '{draft}'"),
         value="FNAME", launch="draft"),
    Flag(("--spec-type",), "methods of speculative decoding, comma-separated (default: none)",
         _put_spec_types, ("--spec-type", "draft-simple,ngram-mod"),
         Generation("speculative.types", "none,draft-simple,ngram-mod"),
         value=",".join(SPEC_TYPES), read=_read_spec_types, launch="draft"),
    Flag(("--spec-default",), "the default speculation: ngram-mod 24, 48 to 64", _put_default,
         ("--spec-default",), Log(r"n_match=24, n_max=64, n_min=48"), launch="spec-default"),
    Flag(("--spec-draft-device", "-devd", "--device-draft"), "devices of the draft model, none "
         "for the processor (default: the target's)", at(_DRAFT + "devices"), ("-devd", "nowhere"),
         Effect("refuses an unknown device"), value="<dev1,dev2,..>", launch="unknown-draft-device"),
    Flag(("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
         "draft layers on devices: a number, auto or all (default: auto)",
         at(_DRAFT + "n_gpu_layers"), ("-ngld", "3"), Log(r"gpu_layers=3,"), value="N",
         read=layers, launch="draft"),
    Flag(("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"), "type of K in the draft's "
         f"cache: {', '.join(CACHE_TYPES)} (default: f16)", at(_DRAFT + "cache_type_k"),
         ("-ctkd", "q8_0"), Log(r"cache_k=q8_0"), value="TYPE", read=read_cache_type,
         launch="draft"),
    Flag(("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"), "type of V in the draft's "
         f"cache: {', '.join(CACHE_TYPES)} (default: f16)", at(_DRAFT + "cache_type_v"),
         ("-ctvd", "bf16"), Log(r"cache_v=bf16"), value="TYPE", read=read_cache_type,
         launch="draft"),
    Flag(("--spec-draft-override-tensor", "-otd", "--override-tensor-draft"), "buffer type of the "
         "draft's tensors that a pattern finds", joined(_DRAFT + "tensor_buft_overrides"),
         ("-otd", r"blk\.1\.attn_q=CPU"), Log(r"tensor blk\.1\.attn_q\.weight .*overridden to CPU"),
         value="<tensor name pattern>=<buffer type>,...", launch="draft-moe"),
    Flag(("--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft"), "the draft's experts of all "
         "layers in host memory", all_experts(_DRAFT + "tensor_buft_overrides"), ("-cmoed",),
         Log(r"tensor blk\.2\.ffn_up_exps\.weight .*overridden to CPU"),
         launch="draft-all-experts"),
    Flag(("--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
         "the draft's experts of the first N layers in host memory",
         lambda params, count: joined(_DRAFT + "tensor_buft_overrides")(
             params, expert_layer_overrides(count)),
         ("-ncmoed", "2"), Log(r"tensor blk\.1\.ffn_up_exps\.weight .*overridden to CPU"),
         value="N", read=integer(0), launch="draft-moe"),
    Flag(("--spec-draft-n-max",), "most draft tokens (default: 3)", at(_DRAFT + "n_max"),
         ("--spec-draft-n-max", "5"), Log(r"- n_max=5,"), value="N", read=integer(0),
         launch="draft"),
    Flag(("--spec-draft-n-min",), "fewest draft tokens that are used (default: 0)",
         at(_DRAFT + "n_min"), ("--spec-draft-n-min", "2"), Log(r"n_min=2,"), value="N",
         read=integer(0), launch="draft"),
    Flag(("--spec-draft-p-min", "--draft-p-min"), "least probability of a draft token "
         "(default: 0)", at(_DRAFT + "p_min"), ("--spec-draft-p-min", "0.25"),
         Log(r"p_min=0\.25"), value="P", read=number(0.0, 1.0), launch="draft"),
    Flag(("--spec-draft-p-split", "--draft-p-split"), "split probability (default: 0.1)",
         at(_DRAFT + "p_split"), ("--spec-draft-p-split", "0.5"),
         OnlyParams("the engine logs it nowhere and reads it only for trees of drafts"),
         value="P", read=number(0.0, 1.0), launch="draft"),
    Flag(("--spec-draft-backend-sampling",), "sample the draft on the device (default: yes)",
         at(_DRAFT + "backend_sampling"), ("--no-spec-draft-backend-sampling",),
         OnlyParams("changes where a token is drawn, not which"),
         off=("--no-spec-draft-backend-sampling",), launch="draft"),
    Flag(("--spec-draft-sampling",), "how the draft is drawn (default: greedy)",
         lambda params, text: at(_DRAFT + "probabilistic")(params, text == "probabilistic"),
         ("--spec-draft-sampling", "probabilistic"),
         OnlyParams("rejection sampling keeps the distribution, so no output tells"),
         value="{greedy,probabilistic}", read=word("greedy", "probabilistic"), launch="draft"),
    Flag(("--spec-synth-len",), "synthetic mean acceptance length, for benchmarks",
         at("speculative.synth_len"), ("--spec-synth-len", "2"), Log(r"mean length = 2\.0"),
         value="L", read=number(1.0), launch="synth-length"),
    Flag(("--spec-synth-rates",), "synthetic acceptance by position, for benchmarks",
         at("speculative.synth_rates"), ("--spec-synth-rates", "0.5,0.25,0.125"),
         Log(r"rates = \[0\.5\d*, ?0\.25\d*, ?0\.125\d*\]"), value="P0,P1,...", read=numbers,
         launch="synth-rates"),
    Flag(("--spec-draft-threads", "-td", "--threads-draft"), "threads of the draft (default: as "
         "--threads)", at(_DRAFT + "cpuparams.n_threads"), ("-td", "1"), OnlyParams(_SCHEDULING),
         value="N", read=threads, launch="draft"),
    Flag(("--spec-draft-threads-batch", "-tbd", "--threads-batch-draft"), "threads of the draft "
         "in prompt processing", at(_DRAFT + "cpuparams_batch.n_threads"), ("-tbd", "1"),
         OnlyParams(_SCHEDULING), value="N", read=threads, launch="draft"),
    *(Flag(names, meaning, at(_DRAFT + field), (names[0], example), OnlyParams(_SCHEDULING),
           value="N", read=read, launch="draft")
      for names, meaning, field, example, read in (
          (("--spec-draft-prio", "--prio-draft"), "priority of the draft's threads",
           "cpuparams.priority", "1", read_raised_priority),
          (("--spec-draft-prio-batch", "--prio-batch-draft"), "the same in prompt processing",
           "cpuparams_batch.priority", "1", read_raised_priority),
          (("--spec-draft-poll", "--poll-draft"), "polling level of the draft's threads",
           "cpuparams.poll", "3", integer(0, 100)),
          (("--spec-draft-poll-batch", "--poll-batch-draft"), "the same in prompt processing",
           "cpuparams_batch.poll", "3", integer(0, 100)),
          (("--spec-draft-cpu-strict", "--cpu-strict-draft"), "strict placement of the draft",
           "cpuparams.strict_cpu", "1", switch),
          (("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"), "the same in prompt "
           "processing", "cpuparams_batch.strict_cpu", "1", switch))),
)  # fmt: skip

NGRAM_FLAGS = (
    *(Flag((f"--spec-ngram-mod-{name}",), meaning, at(f"speculative.ngram_mod.{part}"),
           (f"--spec-ngram-mod-{name}", example), Log(r"n_match=9, n_max=11, n_min=3"), value="N",
           read=integer(0, 1024), launch="ngram")
      for name, part, meaning, example in (
          ("n-match", "n_match", "length that ngram-mod looks up (default: 24)", "9"),
          ("n-min", "n_min", "fewest tokens that ngram-mod drafts (default: 48)", "3"),
          ("n-max", "n_max", "most tokens that ngram-mod drafts (default: 64)", "11"))),
    *_map_rows("ngram-simple", r"- size_n=5, size_m=7, min_hits=2"),
    *_map_rows("ngram-map-k", r"- size_key=5, size_value=7, key_only=1, min_hits=2"),
    *_map_rows("ngram-map-k4v", r"- size_key=5, size_value=7, key_only=0, min_hits=2"),
    Flag(("-lcs", "--lookup-cache-static"), "n-gram cache that is only read",
         at("speculative.ngram_cache.lookup_cache_static"), ("-lcs", "{folder}/static.bin"),
         Log(r"cache_static={folder}/static\.bin"), value="FNAME", launch="ngram"),
    Flag(("-lcd", "--lookup-cache-dynamic"), "n-gram cache that generation adds to",
         at("speculative.ngram_cache.lookup_cache_dynamic"), ("-lcd", "{folder}/dynamic.bin"),
         Log(r"cache_dynamic={folder}/dynamic\.bin"), value="FNAME", launch="ngram"),
)  # fmt: skip
