"""What a context keeps for its sequences: KV cache by kind of attention, and recurrent state."""

from dataclasses import dataclass

from app.inventory.ggml_types import TENSOR_TYPES
from app.placement.layers import HOST, Layout
from app.placement.shape import CompressedContext, LayerShape, ModelShape
from app.profiles.profile import CacheType

_CELLS_PADDED = 256
_F32_BYTES = 4
_TYPES = {known.name.lower(): known for known in TENSOR_TYPES.values()}
_CSA_RATIO, _HCA_RATIO = 4, 128


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What decides the size of a context.

    `tokens` is what was asked for, all slots together. `rollback_states` are kept for each slot beside the current one.
    `outputs` is the most rows of logits one batch can ask for.
    """

    tokens: int
    slots: int = 1
    is_unified: bool = False
    k_type: CacheType = "f16"
    v_type: CacheType = "f16"
    batch_size: int = 2048
    ubatch_size: int = 512
    flash_attention: bool = True
    is_on_devices: bool = True
    full_windows: bool = False
    rollback_states: int = 0
    outputs: int = 1

    @property
    def streams(self) -> int:
        """Separate caches: one for each slot, or one for all."""
        return 1 if self.is_unified else self.slots

    @property
    def cells(self) -> int:
        """Cells of one full-attention cache; the engine rounds up to 256."""
        padded = _padded(self.tokens)
        return padded if self.is_unified else _padded(max(1, padded // self.slots))

    @property
    def total_tokens(self) -> int:
        """The context that all slots have together once it is rounded."""
        return self.cells * self.streams

    @property
    def ubatch_tokens(self) -> int:
        """Tokens of one micro-batch: never more than the context that was asked for."""
        return min(self.tokens, self.batch_size, self.ubatch_size)

    def window_cells(self, window: int) -> int:
        """Cells of one windowed cache: the window, and room for a micro-batch."""
        if self.full_windows:
            return self.cells
        reach = window * (self.slots if self.is_unified else 1)
        return _padded(min(self.cells, reach + self.ubatch_tokens))


@dataclass(slots=True)
class PlacedContext:
    """Bytes by index of the device, and on the host."""

    kv_device_bytes: list[int]
    state_device_bytes: list[int]
    kv_host_bytes: int = 0
    state_host_bytes: int = 0


def place_context(shape: ModelShape, size: ContextSize, layout: Layout, *, nextn: bool = False) -> PlacedContext:
    """The cache of every layer where the layer is; of the MTP layers only, with `nextn`.

    Without KV offload all of it is on the host.
    """
    count = len(layout.devices)
    placed = PlacedContext([0] * count, [0] * count)
    widest_value = max((layer.v_width for layer in shape.layers), default=0)
    for unit, layer in enumerate(shape.layers):
        if layer.is_nextn is not nextn:
            continue
        place = layout.units[unit] if size.is_on_devices else HOST
        if shape.compressed:
            kv_bytes = _compressed_bytes(shape, shape.compressed, size, unit)
            state_bytes = _compressor_bytes(shape.compressed, size, unit)
        else:
            kv_bytes = _layer_bytes(shape, layer, size, widest_value)
            state_bytes = state_bytes_of(shape, size) if layer.is_recurrent else 0
        if place is HOST:
            placed.kv_host_bytes += kv_bytes
            placed.state_host_bytes += state_bytes
        else:
            _spread(placed.kv_device_bytes, layout, place, kv_bytes)
            _spread(placed.state_device_bytes, layout, place, state_bytes)
    return placed


def row_bytes(type_name: str, width: int) -> int:
    """Bytes of `width` values of a cache type; whole blocks."""
    known = _TYPES[type_name]
    return -(-width // known.block_elements) * known.block_bytes


def _layer_bytes(shape: ModelShape, layer: LayerShape, size: ContextSize, widest_value: int) -> int:
    if not layer.k_width:
        return 0
    cells = size.window_cells(shape.window) if layer.is_windowed else size.cells
    # Without flash attention values are stored transposed, and every layer as wide as the widest.
    value = layer.v_width if size.flash_attention or not layer.v_width else widest_value
    return cells * size.streams * (row_bytes(size.k_type, layer.k_width) + row_bytes(size.v_type, value))


def state_bytes_of(shape: ModelShape, size: ContextSize) -> int:
    """The state of one recurrent layer for all slots, with those kept to undo drafts."""
    if shape.recurrent is None:
        return 0
    values = shape.recurrent.conv_values + shape.recurrent.state_values
    return values * _F32_BYTES * size.slots * (1 + size.rollback_states)


def _compressed_bytes(shape: ModelShape, compressed: CompressedContext, size: ContextSize, unit: int) -> int:
    """DeepSeek V4 keeps one key per cell, and never shares caches between slots."""
    apart = _apart(size)
    key = row_bytes(size.k_type, compressed.key_width)
    n_bytes = apart.window_cells(shape.window) * key
    if compressed.ratios[unit] == _CSA_RATIO:
        n_bytes += _padded(-(-size.cells // _CSA_RATIO)) * (key + row_bytes(size.k_type, compressed.index_width))
    elif compressed.ratios[unit] == _HCA_RATIO:
        n_bytes += _padded(-(-size.cells // _HCA_RATIO)) * key
    return n_bytes * size.slots


def _compressor_bytes(compressed: CompressedContext, size: ContextSize, unit: int) -> int:
    """Keys and scores that wait until a group is complete."""
    planes = size.slots * (1 + size.rollback_states)
    if compressed.ratios[unit] == _CSA_RATIO:
        widths = 2 * compressed.key_width + 2 * compressed.index_width
        return 2 * (2 * _CSA_RATIO) * widths * _F32_BYTES * planes
    if compressed.ratios[unit] == _HCA_RATIO:
        return 2 * _HCA_RATIO * compressed.key_width * _F32_BYTES * planes
    return 0


def _apart(size: ContextSize) -> ContextSize:
    """The same context with a window of its own for each slot; its cells stay."""
    if not size.is_unified:
        return size
    return ContextSize(
        tokens=size.cells * size.slots,
        slots=size.slots,
        batch_size=min(size.batch_size, size.tokens),
        ubatch_size=size.ubatch_size,
        full_windows=size.full_windows,
    )


def _spread(by_device: list[int], layout: Layout, place: int, n_bytes: int) -> None:
    if not layout.is_shared:
        by_device[place] += n_bytes
        return
    total = sum(layout.shares)
    for index, share in enumerate(layout.shares):
        by_device[index] += round(n_bytes * share / total)


def _padded(cells: int) -> int:
    return -(-cells // _CELLS_PADDED) * _CELLS_PADDED
