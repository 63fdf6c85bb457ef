"""Bytes of weights by place, once every unit has one: overrides, tied embeddings, what the host repacks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.inventory.devices import Device
from app.inventory.ggml_types import tensor_type_name
from app.inventory.models import ModelFile
from app.placement.layers import HOST, Layout
from app.placement.override_patterns import look_for
from app.placement.shape import ModelShape
from app.profiles.profile import CpuMoeLayers

# Read by row number, so they stay on the host wherever the first layer is.
_INPUTS = frozenset(
    {
        "token_embd.weight",
        "position_embd.weight",
        "token_types.weight",
        "per_layer_token_embd.weight",
        "masked_embd_centroids.weight",
        "masked_embd_ordering",
    }
)
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps")
_DENSE = re.compile(r"\.ffn_(?:up|down|gate)\.")
# What the CPU backend of an x86-64 machine with AVX-512 stores anew for its matrix products.
_REPACKED = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"})
_REPACKED_ROWS = 8
_RPC_BUFFER = re.compile(r"RPC(\d{1,4})\[(.+)\]")


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """One tensor as far as placing it needs. `repacked_bytes` is its size where the CPU would store it anew, else 0."""

    name: str
    n_bytes: int
    repacked_bytes: int


@dataclass(frozen=True, slots=True)
class UnitVisits:
    """The largest matrices of a unit: `up_bytes` of gate and up, `down_bytes`, and of what is not the feed-forward.

    Of a mixture of experts the experts of all kinds, which are one matrix.
    """

    up_bytes: int
    down_bytes: int
    other_bytes: int


@dataclass(frozen=True, slots=True)
class WeightTable:
    """A model's tensors by unit. `inputs` are read on the host; `tied` is the embedding table that is the head too."""

    units: tuple[tuple[WeightTensor, ...], ...]
    inputs: tuple[WeightTensor, ...]
    tied: WeightTensor | None
    unit_bytes: tuple[int, ...]
    expert_bytes: tuple[int, ...]
    visits: tuple[UnitVisits, ...] = ()
    # Patterns are looked for once, however many plans are made of the same table.
    _found: dict[tuple[str, ...], Mapping[str, int]] = field(default_factory=dict, compare=False, repr=False)

    def first_found(self, patterns: tuple[str, ...]) -> Mapping[str, int]:
        """By name of a tensor, the position of the first pattern found in it; one that is refused moves nothing."""
        if patterns not in self._found:
            names = [tensor.name for tensors in (*self.units, self.inputs) for tensor in tensors]
            self._found[patterns] = look_for(patterns, names).first if patterns else {}
        return self._found[patterns]


@dataclass(frozen=True, slots=True)
class Overrides:
    """Which tensors leave their unit: experts of the first layers, then patterns, the first match winning."""

    cpu_moe_layers: CpuMoeLayers = 0
    cpu_ffn_layers: int = 0
    patterns: tuple[tuple[str, str], ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether the engine is given any override, also one that matches nothing: it then gives up pipelining."""
        return bool(self.cpu_moe_layers or self.cpu_ffn_layers or self.patterns)


@dataclass(slots=True)
class PlacedWeights:
    """Bytes by index of the device, and on the host. `repacked_bytes` of the host's may not be mapped from the file.

    `experts_on_host` names the layers whose experts are there though the layer is not.
    """

    device_bytes: list[int]
    host_bytes: int = 0
    repacked_bytes: int = 0
    experts_on_host: set[int] = field(default_factory=set)
    dense_on_host: set[int] = field(default_factory=set)


def weight_table(shape: ModelShape) -> WeightTable:
    """Sort a model's tensors by unit, once."""
    units: list[list[WeightTensor]] = [[] for _ in range(shape.unit_count)]
    inputs: list[WeightTensor] = []
    tied = None
    output = shape.block_count
    for name, info in shape.model.tensors.items():
        tensor = WeightTensor(name, info.n_bytes, _repacked_bytes(info.type_id, info.shape, info.n_bytes))
        if name.startswith("blk."):
            unit = _unit(name, output)
            units[unit].append(tensor)
        elif name in _INPUTS:
            inputs.append(WeightTensor(name, info.n_bytes, 0))
            if name == "token_embd.weight" and shape.is_tied:
                tied = tensor
        elif name != "rope_freqs.weight" or not output:
            units[output].append(tensor)
        else:
            units[0].append(tensor)
    return WeightTable(
        units=tuple(map(tuple, units)),
        inputs=tuple(inputs),
        tied=tied,
        unit_bytes=tuple(sum(tensor.n_bytes for tensor in unit) for unit in units),
        expert_bytes=tuple(
            sum(tensor.n_bytes for tensor in unit if _EXPERTS.search(tensor.name)) for unit in units[:-1]
        ),
        visits=tuple(map(_visits, units)),
    )


def _visits(unit: Sequence[WeightTensor]) -> UnitVisits:
    up = down = other = 0
    for tensor in unit:
        if ".ffn_down" in tensor.name:
            down = max(down, tensor.n_bytes)
        elif ".ffn_" in tensor.name:
            up = max(up, tensor.n_bytes)
        else:
            other = max(other, tensor.n_bytes)
    return UnitVisits(up, down, other)


def parse_override(text: str) -> list[tuple[str, str]]:
    """`regex=BUFFER` entries as the engine reads them: split at every comma, then at the first `=`.

    An entry without `=` is left out: the engine refuses it.
    """
    parts = (entry.partition("=") for entry in text.split(","))
    return [(pattern, buffer) for pattern, found, buffer in parts if found]


def device_of_buffer(buffer: str, devices: Sequence[Device]) -> str:
    """The device that a buffer of an override belongs to; the name itself where that is what it says.

    An RPC buffer is called by the number of the device on its own server, `RPC0[address]`, and the device by its number
    among those of all servers. Devices are told by their description, which is the address.
    """
    spelled = _RPC_BUFFER.fullmatch(buffer)
    if spelled is None:
        return buffer
    there = [device.name for device in devices if device.name.startswith("RPC") and device.description == spelled[2]]
    number = int(spelled[1])
    return there[number] if number < len(there) else buffer


def place_weights(
    shape: ModelShape, table: WeightTable, layout: Layout, overrides: Overrides, *, with_nextn: bool
) -> PlacedWeights:
    """Sum every tensor where it will be. MTP layers weigh nothing unless they are asked for."""
    placed = PlacedWeights([0] * len(layout.devices))
    rules = _Rules(overrides, table, layout.devices)
    skipped = set() if with_nextn else {unit for unit, layer in enumerate(shape.layers) if layer.is_nextn}
    for unit, place in enumerate(layout.units):
        if unit in skipped:
            continue
        if not rules.touch(unit, place):
            _add(placed, layout, place, table.unit_bytes[unit], _repacked(table.units[unit], place))
            continue
        for tensor in table.units[unit]:
            moved = rules.place(tensor.name, unit, place)
            _add(placed, layout, moved, tensor.n_bytes, tensor.repacked_bytes if moved is HOST else 0)
            if moved is HOST and place is not HOST:
                if _EXPERTS.search(tensor.name):
                    placed.experts_on_host.add(unit)
                elif ".ffn_" in tensor.name:
                    placed.dense_on_host.add(unit)
    for tensor in table.inputs:
        _add(placed, layout, rules.place(tensor.name, shape.block_count, HOST), tensor.n_bytes, 0)
    if table.tied is not None:
        place = rules.place(table.tied.name, shape.block_count, layout.output)
        # On the host one table serves both, unless the head is stored anew for the CPU.
        if place is not HOST or table.tied.repacked_bytes:
            _add(placed, layout, place, table.tied.n_bytes, table.tied.repacked_bytes)
    return placed


class _Rules:
    """The overrides, ready to be asked. A buffer that is no device of the launch counts as the host."""

    def __init__(self, overrides: Overrides, table: WeightTable, devices: Sequence[str]) -> None:
        every = overrides.cpu_moe_layers == "all"
        self._experts_before = 1 << 30 if every else int(overrides.cpu_moe_layers)
        self._dense_before = overrides.cpu_ffn_layers
        index = {name: position for position, name in enumerate(devices)}
        # Of an RPC buffer whose address no device has, its own name is all there is: `RPC0[127.0.0.1:1]`.
        self._targets = [index.get(buffer.partition("[")[0]) for _, buffer in overrides.patterns]
        self._found = table.first_found(tuple(pattern for pattern, _ in overrides.patterns))

    def touch(self, unit: int, place: int | None) -> bool:
        """Whether any tensor of this unit may leave it."""
        moves = unit < max(self._experts_before, self._dense_before)
        return bool(self._found) or (moves and place is not HOST)

    def place(self, name: str, unit: int, place: int | None) -> int | None:
        """Where a tensor goes: the first rule that matches its name decides."""
        if unit < self._experts_before and _EXPERTS.search(name):
            return HOST
        if unit < self._dense_before and _DENSE.search(name):
            return HOST
        found = self._found.get(name)
        return place if found is None else self._targets[found]


def _add(placed: PlacedWeights, layout: Layout, place: int | None, n_bytes: int, repacked_bytes: int) -> None:
    if place is HOST:
        placed.host_bytes += n_bytes
        placed.repacked_bytes += repacked_bytes
    elif layout.is_shared or layout.splits_rows:
        total = sum(layout.shares)
        for index, share in enumerate(layout.shares):
            placed.device_bytes[index] += round(n_bytes * share / total)
    else:
        placed.device_bytes[place] += n_bytes


def _repacked(tensors: Sequence[WeightTensor], place: int | None) -> int:
    return sum(tensor.repacked_bytes for tensor in tensors) if place is HOST else 0


def _repacked_bytes(type_id: int, shape: Sequence[int], n_bytes: int) -> int:
    """Only matrices are, and only where their rows come in full groups."""
    if len(shape) < 2 or tensor_type_name(type_id) not in _REPACKED or shape[1] % _REPACKED_ROWS:
        return 0
    return n_bytes


def _unit(name: str, output: int) -> int:
    number = name[4:].partition(".")[0]
    return min(int(number), output) if number.isascii() and number.isdecimal() and len(number) < 6 else output


def model_bytes(model: ModelFile) -> int:
    """All tensors of a model together, without padding."""
    return sum(tensor.n_bytes for tensor in model.tensors.values())
