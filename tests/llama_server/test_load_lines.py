"""Recorded output of real loads, of build 11434 and the embedded engine, against what the tiny models must take."""

import pytest
from fixtures.load_shapes import EMBEDDED, LOAD_SHAPES, REAL, LoadShape, capture_path
from fixtures.loaded import loaded
from fixtures.tiny_models import TinyModels

from app.inventory.models import read_model
from app.llama_server.load_facts import PRINTED_BYTES, BufferKind, LoadFacts, Part
from app.llama_server.load_lines import LoadLines

CONTEXT_TOKENS = 1024
# K and V of one head of 32 values in 16 bits.
LAYER_KV_BYTES = CONTEXT_TOKENS * 2 * 32 * 2
RUNS = [pytest.param(shape, engine, id=f"{shape.id}-{engine}") for shape in LOAD_SHAPES for engine in shape.engines]


def lines_of(shape_id: str, engine: str = REAL) -> list[str]:
    shape = next(shape for shape in LOAD_SHAPES if shape.id == shape_id)
    return capture_path(shape, engine).read_text(encoding="utf-8").splitlines()


def facts_of(shape_id: str, engine: str = REAL) -> LoadFacts:
    return loaded(lines_of(shape_id, engine)).facts


def weights(tiny: TinyModels, name: str, *prefixes: str) -> int:
    """Bytes of the tensors whose names begin so."""
    tensors = read_model(getattr(tiny, name)).tensors.items()
    return sum(info.n_bytes for tensor, info in tensors if tensor.startswith(prefixes))


def blocks(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"blk.{number}." for number in range(first, last + 1))


def printed(n_bytes: int) -> object:
    """That many bytes, as far as two decimals of a MiB tell."""
    return pytest.approx(n_bytes, abs=PRINTED_BYTES + 1)


@pytest.mark.parametrize(("shape", "engine"), RUNS)
def test_every_load_tells_its_slots_and_the_memory_of_its_target(shape: LoadShape, engine: str) -> None:
    facts = facts_of(shape.id, engine)
    slots = 4 if shape.id == "host-slots" else 1
    assert (facts.slots, facts.unified_kv) == (slots, slots > 1)
    assert facts.context_per_slot == (4096 if slots > 1 else CONTEXT_TOKENS)
    for kind in (BufferKind.KV, BufferKind.COMPUTE):
        assert sum(facts.by_place(Part.TARGET, kind).values()) > 0
    assert any(buffer.kind is BufferKind.MODEL for buffer in facts.buffers)
    assert facts.methods is not None
    assert not facts.lost_pipelining


def test_weights_and_caches_of_two_devices_are_exact(tiny: TinyModels) -> None:
    facts = facts_of("baseline-not-mapped")
    assert facts.by_place(Part.TARGET, BufferKind.MODEL) == {
        "RPC0": printed(weights(tiny, "dense_target", *blocks(0, 4))),
        "RPC1": printed(weights(tiny, "dense_target", *blocks(5, 7), "output")),
        "host": printed(weights(tiny, "dense_target", "token_embd")),
    }
    assert facts.by_place(Part.TARGET, BufferKind.KV) == {
        "RPC0": printed(5 * LAYER_KV_BYTES),
        "RPC1": printed(3 * LAYER_KV_BYTES),
    }
    assert facts.layers(Part.TARGET) == {"RPC0": 5, "RPC1": 3}


def test_a_mapped_buffer_is_known_as_one(tiny: TinyModels) -> None:
    hybrid = facts_of("dspark-hybrid")
    (mapped,) = (buffer for buffer in hybrid.buffers if buffer.is_mapped)
    assert mapped.place == "host"
    assert mapped.n_bytes > weights(tiny, "moe_target", "token_embd") + sum(
        info.n_bytes for name, info in read_model(tiny.moe_target).tensors.items() if "_exps" in name
    )
    assert "host" not in hybrid.by_place(Part.TARGET, BufferKind.MODEL)


@pytest.mark.parametrize("shape_id", ["draft-two", "dspark-dual", "dspark-dual-apart", "dflash-two", "eagle3-two"])
def test_a_draft_model_is_told_apart(shape_id: str) -> None:
    facts = facts_of(shape_id)
    place = "RPC0" if shape_id == "dspark-dual-apart" else "RPC1"
    assert facts.by_place(Part.DRAFT, BufferKind.KV) == {place: printed(LAYER_KV_BYTES)}
    assert facts.layers(Part.DRAFT) == {place: 1}
    assert sum(facts.by_place(Part.TARGET, BufferKind.KV).values()) == printed(8 * LAYER_KV_BYTES)
    assert facts.by_place(Part.DRAFT, BufferKind.COMPUTE).keys() == {place, "host"}


def test_drafters_weigh_what_their_tensors_do(tiny: TinyModels) -> None:
    of = {
        shape_id: facts_of(shape_id).by_place(Part.DRAFT, BufferKind.MODEL) for shape_id in ("eagle3-two", "dflash-two")
    }
    assert of["eagle3-two"] == {"RPC1": printed(weights(tiny, "eagle3", ""))}
    assert of["dflash-two"] == {"RPC1": printed(weights(tiny, "dflash", ""))}


def test_a_context_for_multi_token_prediction_has_no_weights(tiny: TinyModels) -> None:
    facts = facts_of("mtp-two")
    assert facts.by_place(Part.MTP, BufferKind.MODEL) == {}
    assert facts.by_place(Part.MTP, BufferKind.KV) == {"RPC1": printed(LAYER_KV_BYTES)}
    # Of eight blocks every fourth has attention; the others have states, and one more for each token of a draft.
    assert facts.by_place(Part.TARGET, BufferKind.KV) == {
        "RPC0": printed(LAYER_KV_BYTES),
        "RPC1": printed(LAYER_KV_BYTES),
    }
    assert facts.by_place(Part.TARGET, BufferKind.RECURRENT).keys() == {"RPC0", "RPC1"}
    assert facts.by_place(Part.TARGET, BufferKind.MODEL) == {
        "RPC0": printed(weights(tiny, "mtp_target", *blocks(0, 4))),
        "RPC1": printed(weights(tiny, "mtp_target", *blocks(5, 8), "output")),
    }
    assert facts.layers(Part.TARGET) == {"RPC0": 5, "RPC1": 3}


def test_layers_that_the_engine_keeps_on_the_host() -> None:
    assert facts_of("baseline-part").layers(Part.TARGET) == {"host": 5, "RPC0": 3}
    assert facts_of("dspark-hybrid").layers(Part.TARGET) == {"RPC0": 8}


@pytest.mark.parametrize("engine", [REAL, EMBEDDED])
@pytest.mark.parametrize(
    ("shape_id", "lengths"),
    [
        ("host-baseline", {}),
        ("host-draft", {"draft-simple": 4}),
        ("host-mtp", {"draft-mtp": 3}),
        ("host-dspark", {"draft-dspark": 5}),
        ("host-dflash", {"draft-dflash": 5}),
        ("host-eagle3", {"draft-eagle3": 3}),
        ("host-draft-longer-than-trained", {"draft-dflash": 15}),
        (
            "host-every-ngram",
            {"ngram-simple": 5, "ngram-map-k": 5, "ngram-map-k4v": 5, "ngram-mod": 5, "ngram-cache": 8},
        ),
    ],
)
def test_methods_and_their_longest_drafts(shape_id: str, lengths: dict[str, int], engine: str) -> None:
    facts = facts_of(shape_id, engine)
    assert facts.draft_lengths == lengths
    assert facts.methods == tuple(lengths)


@pytest.mark.parametrize("engine", [REAL, EMBEDDED])
def test_a_draft_that_does_not_come_up_is_gone(engine: str) -> None:
    lines = loaded(lines_of("host-speculation-fails", engine))
    assert (lines.facts.methods, lines.facts.draft_lengths) == ((), {})
    assert not lines.facts.has(Part.DRAFT)
    assert any("loading draft model" in line for line in lines.until_ready)


@pytest.mark.parametrize("engine", [REAL, EMBEDDED])
def test_more_verbose_output_says_the_same(engine: str) -> None:
    assert facts_of("host-debug", engine) == facts_of("host-draft", engine)


def test_a_measurement_before_the_load_does_not_count() -> None:
    lines = lines_of("mtp-fitted-debug")
    assert sum("load_tensors: loading model tensors" in line for line in lines) > 1
    facts = loaded(lines).facts
    assert list(facts.by_place(Part.TARGET, BufferKind.KV).values()) == 2 * [printed(LAYER_KV_BYTES)]
    assert sum(facts.by_place(Part.MTP, BufferKind.KV).values()) == printed(LAYER_KV_BYTES)


def test_a_buffer_that_stands_for_all_devices_is_at_none_of_them() -> None:
    facts = facts_of("baseline-tensor")
    assert facts.by_place(Part.TARGET, BufferKind.KV).keys() == {"Meta()"}
    assert facts.layers(Part.TARGET) == {}


def test_tensors_that_are_not_loaded_are_noticed() -> None:
    assert facts_of("host-mtp-unused").skips_tensors
    assert not facts_of("host-mtp").skips_tensors


def test_a_load_that_ends_in_the_middle_tells_what_it_had() -> None:
    reader = LoadLines()
    for line in lines_of("dspark-dual"):
        if "common_speculative_init_result" in line:
            break
        reader.add(line)
    assert reader.facts.layers(Part.TARGET).keys() == {"RPC0", "RPC1"}
    assert (reader.facts.methods, reader.facts.slots) == (None, None)
    assert not reader.facts.has(Part.DRAFT)


def test_a_server_that_loads_anew_counts_once() -> None:
    reader, lines = LoadLines(), lines_of("mtp-two")
    loading = lines[: next(number for number, line in enumerate(lines) if line.endswith(": model loaded"))]
    for line in (*loading, *loading):
        reader.add(line)
    assert reader.facts == facts_of("mtp-two")
    assert not reader.is_complete


@pytest.mark.parametrize("engine", [REAL, EMBEDDED])
def test_what_requests_put_into_the_output_is_not_read(engine: str) -> None:
    reader = LoadLines()
    for line in lines_of("host-eagle3", engine):
        reader.add(line)
    assert reader.is_complete
    reader.add("0.00.000.000 I sched_reserve:        CPU compute buffer size =     0.01 MiB")
    reader.add("0.00.000.000 I srv    load_model: loading model '/models/dense.gguf'")
    assert reader.facts == facts_of("host-eagle3", engine)


def heard(*lines: str) -> LoadFacts:
    reader = LoadLines()
    for line in lines:
        reader.add(line)
    return reader.facts


def test_devices_of_several_kinds() -> None:
    facts = heard(
        "0.00.002.030 I cmn  common_param:   - CUDA0   : NVIDIA RTX 4090 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I cmn  common_param:   - CUDA1   : NVIDIA RTX 4090 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I cmn  common_param:   - CUDA10  : NVIDIA RTX 4090 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I cmn  common_param:   - RPC0    : 10.0.0.1:50052 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I cmn  common_param:   - RPC1    : 10.0.0.1:50052 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I cmn  common_param:   - CPU     : a processor (24000 MiB, 23000 MiB free)",
        "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)",
        *(
            f"0.00.006.743 I load_tensors: {name:>12} model buffer size =     1.00 MiB"
            for name in "CPU_Mapped CPU_REPACK CUDA_Host CUDA0 CUDA1_Split CUDA10 RPC1[10.0.0.1:50052] Vulkan7".split()
        ),
    )
    places = [buffer.place for buffer in facts.buffers]
    assert places == ["host", "host", "host", "CUDA0", "CUDA1", "CUDA10", "RPC1", "Vulkan7"]
    assert [buffer.is_mapped for buffer in facts.buffers] == [True] + 7 * [False]


def test_windowed_caches_come_twice() -> None:
    facts = heard(
        "0.00.00.000 ignored",
        "print_info: n_layer               = 12",
        "print_info: n_embd_k_gqa          = 256",
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB",
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells",
        "llama_kv_cache:        CUDA0 KV buffer size =     4.00 MiB",
        "llama_kv_cache:        CUDA1 KV buffer size =     4.00 MiB",
        "llama_kv_cache: size =    8.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16): …",
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells",
        "llama_kv_cache:        CUDA0 KV buffer size =     6.00 MiB",
        "llama_kv_cache:        CUDA1 KV buffer size =     4.00 MiB",
        "llama_kv_cache: size =   10.00 MiB (  1024 cells,  10 layers,  1/1 seqs), K (f16): …",
    )
    assert facts.by_place(Part.TARGET, BufferKind.KV) == {"CUDA0": 10 << 20, "CUDA1": 8 << 20}
    assert facts.layers(Part.TARGET) == {"CUDA0": 7, "CUDA1": 5}


@pytest.mark.parametrize(
    "widths", ["[256, 512, 256, 512]", "[0, 256, 0, 512]"], ids=["all with attention", "some with attention"]
)
def test_layers_of_several_sizes_are_not_counted(widths: str) -> None:
    facts = heard(
        "print_info: n_layer               = 4",
        f"print_info: n_embd_k_gqa          = {widths}",
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB",
        "llama_kv_cache:        CUDA0 KV buffer size =     4.00 MiB",
        "llama_kv_cache: size =    4.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16): …",
    )
    assert facts.uneven == {Part.TARGET}
    assert facts.layers(Part.TARGET) == {}


def test_a_projector_has_a_model_for_each_modality() -> None:
    """As its source writes them: no projector is small enough to be loaded here."""
    facts = heard(
        "0.00.002.030 I cmn  common_param:   - CUDA0   : NVIDIA RTX 4090 (24000 MiB, 23000 MiB free)",
        "0.00.002.030 I clip_ctx: CLIP using CUDA0 backend",
        "0.00.002.030 I load_hparams: model size:         800.50 MiB",
        "0.00.002.030 I load_hparams: metadata size:      0.18 MiB",
        "0.00.002.030 I reserve_compute_meta:      CUDA0 compute buffer size =   180.00 MiB",
        "0.00.002.030 I reserve_compute_meta:      CUDA0 compute buffer size =   170.00 MiB",
        "0.00.002.030 I reserve_compute_meta:        CPU compute buffer size =    10.00 MiB",
        "0.00.002.030 I clip_ctx: CLIP using CPU backend",
        "0.00.002.030 I load_hparams: model size:         2.00 MiB",
    )
    assert facts.by_place(Part.PROJECTOR, BufferKind.MODEL) == {"CUDA0": round(800.5 * (1 << 20)), "host": 2 << 20}
    assert facts.by_place(Part.PROJECTOR, BufferKind.COMPUTE) == {"CUDA0": 170 << 20, "host": 10 << 20}


def test_buffers_that_are_made_again_for_want_of_memory() -> None:
    facts = heard(
        "sched_reserve: reserving ...",
        "0.00.1 W nothing",
        "0.00.002.030 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "sched_reserve:      CUDA0 compute buffer size =   180.00 MiB",
    )
    assert facts.lost_pipelining
    assert facts.by_place(Part.TARGET, BufferKind.COMPUTE) == {"CUDA0": 180 << 20}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "0.00.002.030 I llama_model_loader: - kv 1: general.name str = load_tensors: CPU model buffer size = 9.00 MiB",
        "0.00.002.030 I print_info: general.name = load_tensors: CPU model buffer size = 9.00 MiB",
        "0.00.002.030 I load_tensors: CPU model buffer size = nine MiB",
        "0.00.002.030 I slot print_timing: id  0 | task 0 | load_tensors: CPU model buffer size = 9.00 MiB",
    ],
)
def test_what_is_no_line_of_a_load_says_nothing(line: str) -> None:
    assert heard(line) == LoadFacts()
