"""Weights by place: overrides, and what is stored twice."""

from pathlib import Path

import pytest
from fixtures.oracle import SparseFolder
from fixtures.sparse_models.sparse_file import SparseModel

from app.inventory.devices import Device
from app.inventory.models import read_model
from app.placement.assembly import PlannedModel, planned_model
from app.placement.layers import Layout, assign
from app.placement.weights import Overrides, PlacedWeights, device_of_buffer, parse_override, place_weights

ONE = ("CUDA0",)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))


def placed(known: PlannedModel, overrides: Overrides, devices: tuple[str, ...] = ONE, **more: bool) -> PlacedWeights:
    layout: Layout = assign(known.shape.unit_count, devices, "all")
    return place_weights(known.shape, known.table, layout, overrides, with_nextn=more.get("with_nextn", False))


def test_overrides_are_split_at_commas_and_at_the_first_equals_sign() -> None:
    assert parse_override(r"blk\.1\..*=CPU,exps=RPC0[127.0.0.1:1]") == [
        (r"blk\.1\..*", "CPU"),
        ("exps", "RPC0[127.0.0.1:1]"),
    ]
    assert parse_override("a=b=CPU,nonsense") == [("a", "b=CPU")]


@pytest.mark.parametrize(
    ("buffer", "device"),
    [
        ("RPC0[a:1]", "RPC0"),
        # Measured: the first device of the second server is RPC1, and its buffer is called RPC0.
        ("RPC0[b:2]", "RPC1"),
        ("RPC1[b:2]", "RPC2"),
        ("RPC2[b:2]", "RPC2[b:2]"),
        ("RPC1[c:3]", "RPC1[c:3]"),
        ("RPC1", "RPC1"),
        ("CPU", "CPU"),
    ],
)
def test_an_rpc_buffer_is_found_by_its_address(buffer: str, device: str) -> None:
    devices = [Device("CUDA0", "b:2"), Device("RPC0", "a:1"), Device("RPC1", "b:2"), Device("RPC2", "b:2")]
    assert device_of_buffer(buffer, devices) == device


def test_experts_of_the_first_layers_are_counted_from_the_first_layer_on(models: SparseFolder) -> None:
    """A leading dense layer counts too, so one layer of experts less moves."""
    known = models.planned("glm4moe_air")
    moved = placed(known, Overrides(cpu_moe_layers=3))
    assert moved.experts_on_host == {1, 2}
    assert placed(known, Overrides(cpu_moe_layers=1)).experts_on_host == set()
    assert placed(known, Overrides(cpu_moe_layers=1)).host_bytes == placed(known, Overrides()).host_bytes


def test_shared_experts_stay(models: SparseFolder) -> None:
    known = models.planned("glm4moe_air")
    moved = placed(known, Overrides(cpu_moe_layers="all")).host_bytes - placed(known, Overrides()).host_bytes
    assert moved == sum(known.table.expert_bytes[:-1])


def test_the_first_pattern_that_matches_decides_anywhere_in_the_name(models: SparseFolder) -> None:
    known = models.planned("qwen3moe_30b")
    device = placed(known, Overrides(patterns=(("exps", "CUDA0"), ("blk", "CPU"))))
    experts = sum(known.table.expert_bytes)
    assert device.device_bytes[0] - known.table.unit_bytes[-1] == experts
    host = placed(known, Overrides(patterns=(("blk", "CPU"), ("exps", "CUDA0"))))
    assert host.device_bytes[0] == known.table.unit_bytes[-1]


def test_a_pattern_the_engine_could_not_read_moves_nothing(models: SparseFolder) -> None:
    known = models.planned("qwen3_8b")
    assert placed(known, Overrides(patterns=(("(", "CPU"),))).device_bytes == placed(known, Overrides()).device_bytes


def test_a_pattern_that_takes_too_long_moves_nothing_and_the_next_one_does(models: SparseFolder) -> None:
    known = models.planned("qwen3moe_30b")
    hostile = ("(.|..|...)" * 12 + "[!?]", "CPU")
    assert placed(known, Overrides(patterns=(hostile, ("exps", "CPU")))) == placed(
        known, Overrides(patterns=(("exps", "CPU"),))
    )


def test_mtp_layers_weigh_nothing_unless_they_are_asked_for(models: SparseFolder) -> None:
    known = models.planned("glm4moe_air")
    without, with_nextn = placed(known, Overrides()), placed(known, Overrides(), with_nextn=True)
    assert with_nextn.device_bytes[0] - without.device_bytes[0] == known.table.unit_bytes[-2]


def test_a_tied_table_is_copied_to_the_output_device(models: SparseFolder) -> None:
    known = models.planned("qwen3_06b_draft")
    assert known.table.tied is not None
    split = placed(known, Overrides(), ("CUDA0", "CUDA1"))
    assert split.host_bytes == known.table.tied.n_bytes
    assert sum(split.device_bytes) == sum(known.table.unit_bytes) + known.table.tied.n_bytes
    # On the host one table is enough; measured with the same type.
    assert placed(known, Overrides(), ()).host_bytes == sum(known.table.unit_bytes) + known.table.tied.n_bytes


def test_a_tied_table_that_the_cpu_stores_anew_is_there_twice(tmp_path: Path) -> None:
    """Measured: a Q4_K table of 83 MiB, 529 MiB of `Host` and 83 MiB of `CPU_REPACK` without any device."""
    model = SparseModel("llama", 512, {"block_count": 1, "embedding_length": 256, "attention.head_count": 2})
    model.add("token_embd.weight", (256, 512), "Q4_K")
    model.add("output_norm.weight", (256,))
    model.add("blk.0.attn_norm.weight", (256,))
    known = planned_model(read_model(model.write(tmp_path / "tied.gguf")))
    table_bytes = 256 * 512 // 256 * 144
    on_host = placed(known, Overrides(), ())
    assert on_host.host_bytes == 2 * table_bytes + 2 * 256 * 4
    assert on_host.repacked_bytes == table_bytes


def test_the_matrices_that_may_visit_a_device(models: SparseFolder) -> None:
    """Of a mixture the experts of all kinds are one matrix: here 128 of 2048 by 768, in Q4_K, and down in Q6_K."""
    known = models.planned("qwen3moe_30b")
    weights = 128 * 2048 * 768 // 256
    assert known.table.visits[0].up_bytes == weights * 144
    assert known.table.visits[0].down_bytes == weights * 210
    assert known.table.visits[0].other_bytes == 2048 * 4096 // 256 * 144
