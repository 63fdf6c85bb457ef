"""Bytes of LoRA adapters and control vectors, which lie beside the tensors they change and which no dry run shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.inventory.ggml_types import tensor_type_name
from app.inventory.models import ModelFile, ModelKind
from app.placement.case import Adapter
from app.placement.context import ContextSize
from app.placement.layers import HOST, Layout
from app.placement.shape import ModelShape
from app.placement.weights import Overrides, WeightTable, WeightTensor, place_weights

LORA_A, LORA_B = ".lora_a", ".lora_b"
DIRECTION = "direction."
EMBEDDINGS = "token_embd.weight"
# Adapters leave these out of what they change; the engine passes them over.
IGNORED = "_norm.weight"
F32 = "F32"
_HEAD = "output.weight"
_F32_BYTES = 4
# A pipeline over several devices keeps so many copies of what it hands on.
_PIPELINE_COPIES = 4


@dataclass(slots=True)
class PlacedAdapters:
    """Bytes by index of the device, and on the host."""

    device_bytes: list[int]
    host_bytes: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two matrices for one tensor of the target. `experts` is how many of its slices one token goes through."""

    name: str
    n_bytes: int
    rank: int
    width: int
    experts: int


def place_adapters(
    adapters: Sequence[Adapter], shape: ModelShape, layout: Layout, overrides: Overrides, size: ContextSize
) -> PlacedAdapters:
    """Where every adapter lies, and a bound of what computing with it takes.

    Measured with build 11434: each pair of matrices lies in the buffer type of its tensor (never mapped), and the
    compute buffers grow by the widest product of rank and tokens, on every place that has one.
    """
    placed = PlacedAdapters([0] * len(layout.devices), 0)
    pairs = [pair for adapter in adapters if adapter.kind is ModelKind.LORA for pair in _pairs(adapter.file, shape)]
    vectors = sum(adapter.kind is ModelKind.CONTROL_VECTOR for adapter in adapters)
    if pairs:
        _add_pairs(placed, pairs, shape, layout, overrides)
        _add_products(placed, pairs, layout, size)
    if vectors:
        # One direction for each layer, whatever the file has, and one buffer for all files.
        for unit in range(1, shape.block_count):
            _add_direction(placed, layout, unit, shape.embedding_length * _F32_BYTES)
    return placed


def base_name(name: str) -> str:
    """The tensor of the target that a tensor of an adapter is for; its own name where it has no such ending."""
    return name.removesuffix(LORA_A).removesuffix(LORA_B)


def _pairs(adapter: ModelFile, shape: ModelShape) -> list[_Pair]:
    used = int(shape.model.expert_used_count or 1)
    found = []
    for name, first in adapter.tensors.items():
        second = adapter.tensors.get(base_name(name) + LORA_B)
        if not name.endswith(LORA_A) or second is None:
            continue
        rows = [tensor.shape[1] if len(tensor.shape) > 1 else 1 for tensor in (first, second)]
        experts = used if len(first.shape) > 2 else 1
        # Of embeddings the matrices are the other way round.
        is_input = base_name(name) == EMBEDDINGS
        rank = first.shape[0] if is_input else rows[0]
        found.append(_Pair(base_name(name), first.n_bytes + second.n_bytes, rank, rows[1], experts))
    return found


def _add_pairs(
    placed: PlacedAdapters, pairs: Sequence[_Pair], shape: ModelShape, layout: Layout, overrides: Overrides
) -> None:
    units: list[list[WeightTensor]] = [[] for _ in range(shape.unit_count)]
    inputs: list[WeightTensor] = []
    for pair in pairs:
        tensor = WeightTensor(pair.name, pair.n_bytes, 0)
        if pair.name == EMBEDDINGS:
            inputs.append(tensor)
        else:
            units[_unit(pair.name, shape.block_count)].append(tensor)
    table = WeightTable(
        units=tuple(map(tuple, units)),
        inputs=tuple(inputs),
        tied=None,
        unit_bytes=tuple(sum(tensor.n_bytes for tensor in unit) for unit in units),
        expert_bytes=(0,) * shape.block_count,
    )
    beside = place_weights(shape, table, layout, overrides, with_nextn=True)
    placed.host_bytes += beside.host_bytes
    for index, n_bytes in enumerate(beside.device_bytes):
        placed.device_bytes[index] += n_bytes


def _add_products(placed: PlacedAdapters, pairs: Sequence[_Pair], layout: Layout, size: ContextSize) -> None:
    """What is computed with host matrices may be computed on a device, to which they are then copied."""
    tokens = min(size.ubatch_size, size.batch_size, size.tokens)
    outputs = min(tokens, max(size.outputs, size.slots))
    product = max(
        (pair.rank + pair.width) * pair.experts * (outputs if pair.name == _HEAD else tokens) * _F32_BYTES
        for pair in pairs
    )
    handed_on = sum(pair.rank for pair in pairs if pair.name == EMBEDDINGS) * tokens * _F32_BYTES * _PIPELINE_COPIES
    copied = max(pair.n_bytes for pair in pairs) if placed.host_bytes else 0
    for index in layout.used:
        placed.device_bytes[index] += product + handed_on + copied
    if placed.host_bytes:
        placed.host_bytes += product


def _add_direction(placed: PlacedAdapters, layout: Layout, unit: int, n_bytes: int) -> None:
    place = layout.units[unit]
    if place is HOST:
        placed.host_bytes += n_bytes
    elif layout.is_shared:
        placed.device_bytes = [used + n_bytes for used in placed.device_bytes]
    else:
        placed.device_bytes[place] += n_bytes


def _unit(name: str, output: int) -> int:
    number = name.removeprefix("blk.").partition(".")[0]
    known = name.startswith("blk.") and number.isascii() and number.isdecimal() and len(number) < 6
    return min(int(number), output) if known else output


def is_f32(type_id: int) -> bool:
    """Whether a tensor holds plain 32-bit numbers."""
    return tensor_type_name(type_id) == F32
