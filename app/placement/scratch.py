"""The widest moments of single layers, in bytes for one micro-batch."""

import math
from dataclasses import dataclass, field

from app.placement.context import ContextSize, state_bytes_of
from app.placement.shape import LayerShape, ModelShape

_F32_BYTES = 4
_F16_BYTES = 2
_INDEX_BYTES = 8
# How many tensors as wide as the convolution live at once; that of scans is a bound (one such model was measured).
_DELTA_NET_WIDTHS, _SCAN_WIDTHS = 3, 12


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of a context.

    `tokens` are as many as the engine reserves for: rounded up to whole rows for each slot. `value_bytes` is one value
    for each of them, `hidden_bytes` one hidden state for each, `mask_bytes` the attention masks of all kinds.
    """

    shape: ModelShape
    size: ContextSize
    tokens: int = field(init=False)
    value_bytes: int = field(init=False)
    hidden_bytes: int = field(init=False)
    mask_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        slots = self.size.slots
        tokens = -(-self.size.ubatch_tokens // slots) * slots
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "value_bytes", tokens * _F32_BYTES)
        object.__setattr__(self, "hidden_bytes", self.shape.embedding_length * tokens * _F32_BYTES)
        object.__setattr__(self, "mask_bytes", _mask_bytes(self))

    def cells(self, layer: LayerShape) -> int:
        """Cells that one sequence of this layer attends to."""
        return self.size.window_cells(self.shape.window) if layer.is_windowed else self.size.cells

    def mask_bytes_of(self, *, is_windowed: bool) -> int:
        """One mask: 16 bits with flash attention, else 32, and an index for each stored value."""
        cells = self.size.window_cells(self.shape.window) if is_windowed else self.size.cells
        if self.size.flash_attention:
            return cells * self.tokens * 2
        widest = max((layer.v_width for layer in _attending(self.shape)), default=0)
        return self.tokens * (cells * _F32_BYTES + widest * _INDEX_BYTES)


def _mask_bytes(batch: Batch) -> int:
    """The masks of every kind of layer."""
    attending = _attending(batch.shape)
    n_bytes = sum(batch.mask_bytes_of(is_windowed=kind) for kind in {layer.is_windowed for layer in attending})
    if batch.shape.compressed is not None:
        value_bytes = 2 if batch.size.flash_attention else _F32_BYTES
        cells = _grouped_cells(batch.size, 4) * (2 + value_bytes) + _grouped_cells(batch.size, 128) * value_bytes
        n_bytes += batch.tokens * cells
    return n_bytes


def _attending(shape: ModelShape) -> list[LayerShape]:
    """The layers of the trunk that have a cache, else those of the MTP block."""
    caching = [layer for layer in shape.layers if layer.k_width]
    return [layer for layer in caching if not layer.is_nextn] or caching


def _grouped_cells(size: ContextSize, ratio: int) -> int:
    """Cells of a cache in which one stands for `ratio` tokens; whole groups of 256."""
    groups = math.ceil(size.cells / ratio)
    return math.ceil(groups / 256) * 256


def index_scores_bytes(batch: Batch) -> int:
    """What DeepSeek V4 needs to choose among its compressed cells, beside everything else."""
    if batch.shape.compressed is None:
        return 0
    return 6 * _grouped_cells(batch.size, 4) * batch.tokens


def attention_bytes(batch: Batch, layer: LayerShape) -> int:
    """Queries, keys and values of one layer and, without flash attention, the scores of all heads."""
    shape, value = batch.shape, batch.value_bytes
    if layer.is_recurrent and shape.recurrent is not None:
        # States that undo drafts are all written at once.
        states = state_bytes_of(shape, batch.size) if batch.size.rollback_states else 0
        widths = _SCAN_WIDTHS if shape.recurrent.is_scan else _DELTA_NET_WIDTHS
        return widths * shape.recurrent.conv_width * value + batch.hidden_bytes + states
    query = layer.query_width * value
    if shape.latent is not None:
        latent = shape.latent
        width = latent.key_length + 2 * latent.rope + 2 * latent.kv_rank
        n_bytes = layer.heads * width * value
        if not batch.size.flash_attention:
            n_bytes += layer.heads * (batch.cells(layer) + 2 * latent.key_length) * value
            # Values are a part of the keys here, and are turned for their product in a copy.
            n_bytes += batch.cells(layer) * batch.size.streams * latent.kv_rank * _F16_BYTES
        return n_bytes
    if not batch.size.flash_attention:
        cells = batch.cells(layer) + (_grouped_cells(batch.size, 4) if shape.compressed else 0)
        # Hybrid models gate their attention, so the queries are twice as wide.
        return layer.heads * cells * value + (3 if shape.recurrent else 2) * query
    return (query if shape.compressed else 3 * query) + _narrowed_cache_bytes(batch, layer)


def score_bytes(batch: Batch, layer: LayerShape) -> int:
    """The scores of all heads at once, which flash attention does without."""
    return (
        0 if batch.size.flash_attention or not layer.k_width else layer.heads * batch.cells(layer) * batch.value_bytes
    )


def _narrowed_cache_bytes(batch: Batch, layer: LayerShape) -> int:
    """Flash attention reads 16 bits: of a cache in 32 it makes a copy, a layer at a time."""
    widths = (batch.size.k_type == "f32") * layer.k_width + (batch.size.v_type == "f32") * layer.v_width
    return batch.cells(layer) * batch.size.streams * widths * 2


def inner_bytes(batch: Batch, layer: LayerShape) -> int:
    """One intermediate of the feed-forward: all experts that a token uses, or the dense layer."""
    feed = layer.feed
    return (feed.used * feed.expert if feed.expert else feed.dense) * batch.value_bytes


def feed_forward_bytes(batch: Batch, layer: LayerShape, *, is_pipelined: bool, is_alone: bool = False) -> int:
    """Gate, up and their product; of experts also what all used ones put out, where that is the wider moment.

    `is_alone` is true of a layer that finds no room that others left.
    """
    feed, width = layer.feed, batch.shape.embedding_length
    inner = 3 * inner_bytes(batch, layer)
    if not feed.expert:
        return inner
    if width > 2 * feed.expert:
        return inner + routed_output_bytes(batch, layer) + (batch.hidden_bytes if is_pipelined else 0)
    if (width > feed.expert and is_pipelined and batch.shape.latent) or (width == 2 * feed.expert and is_alone):
        return inner + routed_output_bytes(batch, layer)
    if width == 2 * feed.expert:
        return inner + 2 * batch.hidden_bytes
    return inner + (batch.hidden_bytes if feed.shared or is_pipelined else 0)


def routed_output_bytes(batch: Batch, layer: LayerShape) -> int:
    """One hidden state for every expert that a token uses."""
    return layer.feed.used * batch.hidden_bytes


def choices_bytes(batch: Batch, unit: int) -> int:
    """The experts of every token by rank: the chosen ones, and the others behind them."""
    router = batch.shape.model.tensors.get(f"blk.{unit}.ffn_gate_inp.weight")
    return router.shape[1] * batch.value_bytes if router is not None and len(router.shape) > 1 else 0


def without_experts_bytes(batch: Batch, layer: LayerShape) -> int:
    """What a device still does of a feed-forward whose experts, or whose dense layer, are on the host."""
    feed = layer.feed
    if not feed.expert:
        return 0
    if feed.shared:
        return 3 * feed.shared * batch.value_bytes + batch.hidden_bytes
    return routed_output_bytes(batch, layer)
