"""plan(): what must hold for any launch, and what one plan says."""

from dataclasses import replace
from typing import Any

import pytest
from fixtures.cases import engine, profile
from fixtures.oracle import SparseFolder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.inventory.devices import Device, Host, Machine
from app.placement.assembly import PlannedModel
from app.placement.budgets import HOST_NAME, TERMS, PlacementPlan
from app.placement.case import LaunchCase
from app.placement.options import EngineOptions
from app.placement.plan import DEFAULT_MARGIN_BYTES, plan
from app.placement.resolve import resolve

GIB, MIB = 1 << 30, 1 << 20
MODELS = ("qwen3_06b_draft", "glm4moe_air", "gemma3_27b", "qwen35moe_35b", "deepseek2_lite", "gpt_oss_20b")
NAMES = ("CUDA0", "CUDA1", "CUDA2")

explored = settings(
    derandomize=True,
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))


def machine(count: int, free_gib: int = 24, host_gib: int = 256) -> Machine:
    devices = [Device(name, "", 80 * GIB, free_gib * GIB) for name in NAMES[:count]]
    return Machine(devices, Host(host_gib * GIB, host_gib * GIB))


def case_of(models: SparseFolder, target: str, where: Machine, draft: str | None = None, **changes: Any) -> LaunchCase:
    return LaunchCase(
        profile=profile(**changes),
        machine=where,
        engine=engine(*where.device_names),
        target=models.model(target),
        draft=models.model(draft) if draft else None,
    )


def planned(models: SparseFolder, case: LaunchCase, **more: Any) -> PlacementPlan:
    assert case.target is not None
    return plan(case, resolve(case), target=models.planned(case.target.path.stem), **more)


@st.composite
def launches(draw: st.DrawFn) -> tuple[str, int, dict[str, Any]]:
    """A model, a number of devices, and a profile that always says its split."""
    count = draw(st.integers(0, len(NAMES)))
    shares = st.lists(st.integers(1, 8), min_size=count, max_size=count)
    document: dict[str, Any] = {
        "placement": {
            "gpu_layers": draw(st.sampled_from(["all", 0, 1, 2, 9, 20])),
            "cpu_moe_layers": draw(st.sampled_from([0, 3, 20, "all"])),
            "split_mode": draw(st.sampled_from(["layer", "layer", "none", "tensor"])),
            "tensor_split": draw(shares) or None,
        },
        "context": {
            "size": draw(st.integers(2, 200_000)),
            "slots": draw(st.integers(1, 5)),
            "unified_kv": draw(st.booleans()),
            "k_type": draw(st.sampled_from(["f16", "q8_0", "f32"])),
            "ubatch_size": draw(st.sampled_from([64, 512, 2048])),
            "flash_attention": draw(st.sampled_from(["auto", "off"])),
            "prompt_cache_bytes": 0,
        },
        "speculation": {"method": draw(st.sampled_from(["none", "none", "mtp", "ngram-mod"]))},
    }
    return draw(st.sampled_from(MODELS)), count, document


def tensors_bytes(known: PlannedModel, *, with_nextn: bool) -> int:
    skipped = tuple(f"blk.{at}." for at, layer in enumerate(known.shape.layers) if layer.is_nextn and not with_nextn)
    tensors = known.shape.model.tensors.values()
    return sum(tensor.n_bytes for tensor in tensors if not tensor.name.startswith(skipped or "-"))


@explored
@given(launch=launches())
def test_every_tensor_is_counted_once(models: SparseFolder, launch: tuple[str, int, dict[str, Any]]) -> None:
    """A tied embedding table is there twice once the output is on a device."""
    name, count, document = launch
    result = planned(models, case_of(models, name, machine(count), **document))
    known = models.planned(name)
    expected = tensors_bytes(known, with_nextn=document["speculation"]["method"] == "mtp")
    if known.table.tied is not None and result.output_device != HOST_NAME:
        expected += known.table.tied.n_bytes
    placed = sum(device.terms["weights"] for device in result.devices) + result.host.terms["weights"]
    assert placed == pytest.approx(expected, abs=2_000 if document["placement"]["split_mode"] == "tensor" else 0)


@explored
@given(launch=launches(), more=st.integers(0, 64))
def test_more_memory_never_makes_a_launch_not_fit(
    models: SparseFolder, launch: tuple[str, int, dict[str, Any]], more: int
) -> None:
    name, count, document = launch
    small = planned(models, case_of(models, name, machine(count, 16, 128), **document))
    large = planned(models, case_of(models, name, machine(count, 16 + more, 128 + more), **document))
    assert large.fits or not small.fits


@explored
@given(launch=launches(), more=st.integers(1, 100_000))
def test_more_context_never_needs_less(
    models: SparseFolder, launch: tuple[str, int, dict[str, Any]], more: int
) -> None:
    name, count, document = launch
    short = planned(models, case_of(models, name, machine(count), **document))
    document["context"]["size"] += more
    long = planned(models, case_of(models, name, machine(count), **document))
    for before, after in zip(short.devices, long.devices, strict=True):
        assert after.required_bytes >= before.required_bytes
    assert long.host.required_bytes >= short.host.required_bytes


@explored
@given(launch=launches())
def test_layers_follow_the_order_of_devices(models: SparseFolder, launch: tuple[str, int, dict[str, Any]]) -> None:
    """First the host, then each device in turn, every layer once."""
    name, count, document = launch
    if document["placement"]["split_mode"] == "tensor":
        document["placement"]["split_mode"] = "layer"
    result = planned(models, case_of(models, name, machine(count), **document))
    order = [HOST_NAME, *NAMES]
    places = [order.index(span.device) for span in result.layers]
    assert places == sorted(places)
    layers = [layer for span in result.layers for layer in range(span.first, span.last + 1)]
    assert layers == list(range(models.planned(name).shape.block_count))


@explored
@given(launch=launches(), reserved=st.integers(0, 30 * GIB))
def test_reservations_come_off_in_full(
    models: SparseFolder, launch: tuple[str, int, dict[str, Any]], reserved: int
) -> None:
    name, count, document = launch
    case = case_of(models, name, machine(count), **document)
    alone = planned(models, case)
    promised = planned(models, case, reservations={"CUDA0": reserved, HOST_NAME: reserved})
    if count:
        assert promised.devices[0].headroom_bytes == alone.devices[0].headroom_bytes - reserved
        assert promised.devices[0].reserved_bytes == reserved
    before, after = alone.host.headroom_bytes, promised.host.headroom_bytes
    assert before is not None
    assert after == before - reserved


def test_a_budget_adds_up(models: SparseFolder) -> None:
    result = planned(models, case_of(models, "glm4moe_air", machine(2), placement={"tensor_split": [1, 1]}))
    for device in result.devices:
        assert tuple(device.terms) == TERMS
        assert device.required_bytes == sum(device.terms.values())
        assert device.margin_bytes == DEFAULT_MARGIN_BYTES
        assert device.headroom_bytes == 24 * GIB - DEFAULT_MARGIN_BYTES - device.required_bytes
        assert device.terms["overhead"] > 0
    assert tuple(result.host.terms) == TERMS
    assert result.partial == ()


def test_the_profile_s_margin_goes_first(models: SparseFolder) -> None:
    case = case_of(models, "qwen3_06b_draft", machine(1), placement={"margin_bytes": 3 * GIB})
    assert planned(models, case).devices[0].margin_bytes == 3 * GIB


def test_spans_count_the_experts_on_the_host(models: SparseFolder) -> None:
    placement = {"tensor_split": [1, 1], "cpu_moe_layers": 10}
    result = planned(models, case_of(models, "qwen3moe_30b", machine(2), placement=placement))
    first, second = result.layers
    assert (first.device, first.first, first.last, first.experts_on_host) == ("CUDA0", 0, 24, 10)
    assert (second.device, second.first, second.last, second.experts_on_host) == ("CUDA1", 25, 47, 0)
    assert result.output_device == "CUDA1"


def test_mapped_weights_are_told_from_resident_ones(models: SparseFolder) -> None:
    """Beside a CUDA device nothing is stored anew for the CPU; without any device some of it is."""
    on_device = planned(models, case_of(models, "qwen3moe_30b", machine(1), placement={"cpu_moe_layers": "all"}))
    assert on_device.host.mapped_bytes == on_device.host.terms["weights"]
    alone = planned(models, case_of(models, "qwen3moe_30b", machine(0)))
    assert 0 < alone.host.mapped_bytes < alone.host.terms["weights"]
    assert alone.host.resident_bytes == alone.host.required_bytes - alone.host.mapped_bytes
    read = planned(models, case_of(models, "qwen3moe_30b", machine(0)), options=EngineOptions(maps_files=False))
    assert read.host.mapped_bytes == 0


def test_an_integrated_device_and_the_host_share_one_budget(models: SparseFolder) -> None:
    where = Machine([Device("Vulkan0", "", 64 * GIB, 60 * GIB, integrated=True)], Host(64 * GIB, 50 * GIB))
    result = planned(models, case_of(models, "qwen3moe_30b", where, placement={"cpu_moe_layers": "all"}))
    device, host = result.devices[0], result.host
    assert host.mapped_bytes == 0
    assert device.headroom_bytes == 50 * GIB - device.margin_bytes - device.required_bytes - host.resident_bytes
    assert host.headroom_bytes == 50 * GIB - host.required_bytes - device.required_bytes


def test_a_device_whose_memory_is_not_told_is_said(models: SparseFolder) -> None:
    where = Machine([Device("Vulkan0")], Host(64 * GIB, 60 * GIB))
    result = planned(models, case_of(models, "qwen3_06b_draft", where))
    assert result.partial == ("the memory of Vulkan0 is not known",)
    assert result.fits


def test_without_a_target_nothing_is_planned(models: SparseFolder) -> None:
    case = replace(case_of(models, "qwen3_06b_draft", machine(1)), target=None)
    result = plan(case, resolve(case))
    assert result.devices[0].required_bytes == 0
    assert "cannot be read" in result.partial[0]


def test_an_architecture_that_is_not_known_gets_a_bound(models: SparseFolder) -> None:
    """More than the dry run of the engine says, and it is said."""
    case = case_of(models, "deepseek4", machine(2), placement={"tensor_split": [1, 1]})
    bound, near = planned(models, case), planned(models, case, is_dry_run=True)
    assert any("deepseek4" in what for what in bound.partial)
    for above, raw in zip(bound.devices, near.devices, strict=True):
        assert above.terms["compute"] >= raw.terms["compute"]


def test_a_block_drafter_holds_its_logits_twice(models: SparseFolder) -> None:
    """Measured on a real load: 298.75 MiB in the first reserve, 596.08 in the second, for 151,936 tokens."""
    draft = {"path": "draft.gguf", "device": "CUDA1"}
    case = case_of(
        models,
        "qwen3_8b",
        machine(2),
        "dflash_qwen3_8b",
        placement={"tensor_split": [1, 1]},
        speculation={"method": "dflash", "draft": draft},
        context={"size": 4096},
    )
    real, dry = planned(models, case), planned(models, case, is_dry_run=True)
    logits = 151_936 * 512 * 4
    assert real.devices[1].terms["draft_compute"] - dry.devices[1].terms["draft_compute"] == logits
    assert real.devices[0].terms["draft_compute"] == 0
    # It has no embeddings and no head: those are the target's.
    assert real.devices[1].terms["draft_weights"] < models.planned("dflash_qwen3_8b_head").shape.model.size_bytes // 2


def test_a_draft_model_has_its_own_terms(models: SparseFolder) -> None:
    draft = {"path": "draft.gguf", "device": "CUDA1", "k_type": "q8_0", "v_type": "q8_0"}
    case = case_of(
        models,
        "qwen3_8b",
        machine(2),
        "qwen3_06b_draft",
        placement={"devices": ["CUDA0"]},
        speculation={"method": "draft", "draft": draft},
        context={"size": 32_768},
    )
    result = planned(models, case)
    first, second = result.devices
    assert first.terms["draft_weights"] == first.terms["draft_kv_cache"] == 0
    assert second.terms["weights"] == second.terms["kv_cache"] == 0
    assert second.terms["draft_kv_cache"] // MIB == 1904
    assert second.terms["draft_weights"] // MIB == 604


def test_hybrid_targets_keep_states_to_undo_drafts(models: SparseFolder) -> None:
    """One state for each draft token beside the current one, for block drafters as for MTP."""
    common: dict[str, Any] = {"context": {"size": 32_768}, "placement": {"devices": ["CUDA0"]}}
    plain = planned(models, case_of(models, "qwen35moe_35b", machine(1), **common))
    drafted = planned(
        models,
        case_of(models, "qwen35moe_35b", machine(1), speculation={"method": "mtp", "draft_tokens_max": 8}, **common),
    )
    assert drafted.devices[0].terms["recurrent_state"] == 9 * plain.devices[0].terms["recurrent_state"]


def test_row_mode_needs_devices_that_can(models: SparseFolder) -> None:
    able = case_of(models, "qwen3_8b", machine(2), placement={"split_mode": "row", "tensor_split": [1, 1]})
    assert planned(models, able).impossible == ()
    remote = Machine([Device("RPC0", "", 24 * GIB, 24 * GIB)], Host(64 * GIB, 60 * GIB))
    result = planned(models, case_of(models, "qwen3_8b", remote, placement={"split_mode": "row"}))
    assert result.impossible == ("split mode row: RPC0 does not support split buffers",)
    assert not result.fits
