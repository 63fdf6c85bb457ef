"""Bytes of adapters: where each pair of matrices lies, and what computing with it takes at most."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.adapters import write_lora, write_vector
from fixtures.cases import case, profile
from fixtures.tiny_models import TinyModels

from app.inventory.models import ModelKind, read_model
from app.placement.budgets import HOST_NAME
from app.placement.case import Adapter
from app.placement.plan import plan
from app.placement.resolve import resolve

RANK, WIDTH, ROWS, VOCABULARY = 4096, 32, 64, 256
F32 = 4
PAIR = RANK * (WIDTH + ROWS) * F32
TOKENS = 512
PRODUCT = (RANK + ROWS) * TOKENS * F32
QUERY = "blk.{}.attn_q.weight"
TWO = {"devices": ["RPC0", "RPC1"], "tensor_split": [1, 1]}


def overhead(tiny: TinyModels, files: Sequence[Adapter], placement: dict[str, Any]) -> dict[str, int]:
    """What the adapters add to each place; nothing may be added elsewhere than under overhead."""
    wanted = profile(placement=placement, context={"size": TOKENS})
    bare = case(wanted, target=read_model(tiny.dense_target), device_names=("RPC0", "RPC1"))
    plans = [plan(judged, resolve(judged)) for judged in (bare, replace(bare, adapters=tuple(files)))]
    tables = [{**{d.name: d.terms for d in each.devices}, HOST_NAME: each.host.terms} for each in plans]
    assert plans[0].host.mapped_bytes == plans[1].host.mapped_bytes
    added = {}
    for name, before in tables[0].items():
        differing = {term for term in before if before[term] != tables[1][name][term]}
        assert differing <= {"overhead"}
        added[name] = tables[1][name]["overhead"] - before["overhead"]
    return added


def lora(folder: Path, target: Path, *names: str) -> Adapter:
    return Adapter("--lora", ModelKind.LORA, read_model(write_lora(folder / "a.gguf", target, names, rank=RANK)))


def test_a_pair_lies_beside_its_tensor(tiny: TinyModels, tmp_path: Path) -> None:
    one = lora(tmp_path, tiny.dense_target, QUERY.format(0), QUERY.format(7))
    assert overhead(tiny, [one], TWO) == {"RPC0": PAIR + PRODUCT, "RPC1": PAIR + PRODUCT, HOST_NAME: 0}
    assert overhead(tiny, [one], {"devices": []}) == {"RPC0": 0, "RPC1": 0, HOST_NAME: 2 * PAIR + PRODUCT}


def test_two_adapters_are_two_pairs_and_one_product(tiny: TinyModels, tmp_path: Path) -> None:
    one = lora(tmp_path, tiny.dense_target, QUERY.format(0))
    assert overhead(tiny, [one, one], {"devices": []})[HOST_NAME] == 2 * PAIR + PRODUCT


def test_an_override_takes_the_pair_with_its_tensor(tiny: TinyModels, tmp_path: Path) -> None:
    one = lora(tmp_path, tiny.dense_target, QUERY.format(0))
    added = overhead(tiny, [one], {**TWO, "override_tensor": [r"blk\.0\.attn_q=CPU"]})
    # What lies on the host may be computed on a device, with a copy of it there.
    assert added == {"RPC0": PRODUCT + PAIR, "RPC1": PRODUCT + PAIR, HOST_NAME: PAIR + PRODUCT}


def test_embeddings_stay_on_the_host_and_a_pipeline_keeps_copies_of_what_they_give(
    tiny: TinyModels, tmp_path: Path
) -> None:
    added = overhead(tiny, [lora(tmp_path, tiny.dense_target, "token_embd.weight")], TWO)
    pair, product = RANK * (WIDTH + VOCABULARY) * F32, (RANK + WIDTH) * TOKENS * F32
    assert added[HOST_NAME] == pair + product
    assert added["RPC0"] == product + pair + 4 * RANK * TOKENS * F32


def test_the_head_gives_few_rows(tiny: TinyModels, tmp_path: Path) -> None:
    added = overhead(tiny, [lora(tmp_path, tiny.dense_target, "output.weight")], TWO)
    pair = RANK * (WIDTH + VOCABULARY) * F32
    assert pair < added["RPC1"] < pair + PRODUCT // 10
    assert added[HOST_NAME] == 0


@pytest.mark.parametrize("directions", [[1], [1, 2, 3]])
def test_a_control_vector_has_a_row_for_every_layer_but_the_first(
    directions: list[int], tiny: TinyModels, tmp_path: Path
) -> None:
    file = read_model(write_vector(tmp_path / "v.gguf", WIDTH, directions))
    added = overhead(tiny, [Adapter("--control-vector", ModelKind.CONTROL_VECTOR, file)], {"devices": []})
    blocks = read_model(tiny.dense_target).block_count
    assert added[HOST_NAME] == (blocks - 1) * WIDTH * F32
    added = overhead(tiny, [Adapter("--control-vector", ModelKind.CONTROL_VECTOR, file)], TWO)
    assert added["RPC0"] + added["RPC1"] == (blocks - 1) * WIDTH * F32
