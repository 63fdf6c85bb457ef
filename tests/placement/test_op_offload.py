"""Weights of the host that visit a device for large batches."""

from typing import Any

import pytest
from fixtures.cases import engine, profile
from fixtures.oracle import SparseFolder

from app.inventory.devices import Device, Host, Machine
from app.placement.budgets import PlacementPlan
from app.placement.case import LaunchCase
from app.placement.options import EngineOptions
from app.placement.plan import plan
from app.placement.resolve import resolve

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SparseFolder:
    return SparseFolder(tmp_path_factory.mktemp("sparse"))


def planned(
    models: SparseFolder, names: tuple[str, ...], options: EngineOptions | None = None, **changes: Any
) -> PlacementPlan:
    model = "qwen3moe_30b"
    wanted = {"placement": {"cpu_moe_layers": "all", "tensor_split": [1] * len(names)}, "context": {"size": 8192}}
    case = LaunchCase(
        profile=profile(**(wanted | changes)),
        machine=Machine([Device(name, "", 24 * GIB, 24 * GIB) for name in names], Host(64 * GIB, 60 * GIB)),
        engine=engine(*names),
        target=models.model(model),
    )
    return plan(case, resolve(case), target=models.planned(model), options=options or EngineOptions())


def compute_mib(plan: PlacementPlan) -> list[int]:
    return [device.terms["compute"] // MIB for device in plan.devices]


def test_a_card_makes_room_for_the_largest_matrix(models: SparseFolder) -> None:
    """down of 128 experts in Q6_K is 157 MiB; what is made of it 32 MiB."""
    without, visited = planned(models, ("RPC0",)), planned(models, ("CUDA0",))
    assert visited.devices[0].terms["compute"] > (157 + 32) * MIB > without.devices[0].terms["compute"]
    assert without.partial == ()
    assert [what for what in visited.partial if what.startswith("op offload")] == list(visited.partial)


def test_only_the_first_device_that_takes_them_is_visited(models: SparseFolder) -> None:
    bare = compute_mib(planned(models, ("RPC0", "RPC1", "RPC2")))
    mixed = compute_mib(planned(models, ("RPC0", "CUDA0", "CUDA1")))
    assert [more > plain for more, plain in zip(mixed, bare, strict=True)] == [False, True, False]


def test_layers_of_the_host_visit_too(models: SparseFolder) -> None:
    some = planned(models, ("CUDA0",), placement={"gpu_layers": 20, "cpu_moe_layers": 0})
    assert some.devices[0].terms["compute"] > 157 * MIB
    assert some.partial


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (EngineOptions(offloads_ops=False), {}),
        (EngineOptions(), {"placement": {"cpu_moe_layers": 0}}),
        # The engine offloads from 32 tokens on.
        (EngineOptions(), {"context": {"size": 8192, "batch_size": 31, "ubatch_size": 31}}),
    ],
)
def test_nothing_visits(models: SparseFolder, options: EngineOptions, changes: dict[str, Any]) -> None:
    card, rpc = (planned(models, names, options, **changes) for names in (("CUDA0",), ("RPC0",)))
    assert compute_mib(card) == compute_mib(rpc)
    assert card.partial == ()
