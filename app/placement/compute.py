"""Compute buffers: what one micro-batch needs while it is worked on, by device.

The scheduler reserves a worst-case graph once. What it then holds on a device comes to: the attention masks and the
hidden states that cross between devices (held four times where batches are pipelined), and the widest moment of the
widest layer. The figures below were fitted to dry runs of llama.cpp build 11434 and are checked against them in the
tests; weights and caches are exact, these are within some tens of MiB.
"""

from dataclasses import dataclass, field

from app.placement.context import ContextSize, row_bytes
from app.placement.layers import HOST, Layout
from app.placement.scratch import (
    Batch,
    attention_bytes,
    feed_forward_bytes,
    inner_bytes,
    routed_output_bytes,
    without_experts_bytes,
)
from app.placement.shape import ModelShape

_PIPELINE_COPIES = 4
_PACKED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Moved:
    """What overrides took off the devices: layers whose experts, or dense feed-forward, are on the host.

    `is_asked` is true for any override at all, also one that moved nothing.
    """

    experts: frozenset[int] = frozenset()
    dense: frozenset[int] = frozenset()
    is_asked: bool = False

    def has(self, unit: int) -> bool:
        """Whether the feed-forward of this layer is on the host."""
        return unit in self.experts or unit in self.dense


@dataclass(slots=True)
class PlacedCompute:
    """Bytes by index of the device, and on the host."""

    device_bytes: list[int]
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """One context's graph: the model, its sizes, where its units are, and what was moved.

    `is_dry_run` gives the figure that the engine's own dry run prints; a real load needs less on devices that follow
    another, where the dry run counts one hidden state too often.
    """

    shape: ModelShape
    size: ContextSize
    layout: Layout
    moved: Moved = Moved()
    is_dry_run: bool = False
    batch: Batch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", Batch(self.shape, self.size))

    @property
    def trunk(self) -> int:
        """Layers that the ordinary graph runs: the MTP layers are not among them."""
        return self.shape.block_count - self.shape.nextn_layers

    @property
    def is_pipelined(self) -> bool:
        """Whether the engine holds every input four times, to work on several micro-batches at once."""
        return (
            len(self.layout.devices) > 1
            and HOST not in self.layout.units
            and not self.layout.is_shared
            and not self.layout.splits_rows
            and self.size.is_on_devices
            and not self.moved.is_asked
        )

    @property
    def copies(self) -> int:
        """How often inputs are held."""
        return _PIPELINE_COPIES if self.is_pipelined else 1

    @property
    def logits_bytes(self) -> int:
        """The rows of logits that one micro-batch can ask for."""
        return self.shape.vocabulary_size * min(self.batch.tokens, self.size.outputs) * 4

    def trunk_units(self, place: int | None) -> list[int]:
        """Layers of the trunk there, in order."""
        return [unit for unit in self.layout.units_on(place) if unit < self.trunk]


def place_compute(graph: Graph) -> PlacedCompute:
    """The buffers of an ordinary context: a target's, or a draft model's."""
    layout = graph.layout
    placed = PlacedCompute([0] * len(layout.devices))
    follows = bool(graph.trunk_units(HOST))
    for device in layout.used:
        n_bytes = _device_bytes(graph, device, is_first=not follows)
        if layout.is_shared:
            placed.device_bytes = [n_bytes] * len(layout.devices)
            break
        placed.device_bytes[device] = n_bytes
        follows = follows or bool(graph.trunk_units(device))
    placed.host_bytes = _host_bytes(graph)
    return placed


def _device_bytes(graph: Graph, device: int, *, is_first: bool) -> int:
    units = graph.trunk_units(device)
    hidden, copies, masks = graph.batch.hidden_bytes, graph.copies, graph.copies * graph.batch.mask_bytes
    logits = graph.logits_bytes if graph.layout.output == device else 0
    if not units:
        # The output alone: its norm and logits, and the hidden states of the rows that are asked for.
        return logits + min(2 * hidden, 16 << 20) if logits else 0
    crossing = _crossing_states(graph, is_first=is_first) * hidden
    if graph.shape.compressed is not None:
        # Several hidden states for each token travel between devices; one device works on as many.
        streams = graph.shape.compressed.streams
        crossing = streams * crossing if not is_first else crossing + 3 * streams * hidden
    need = masks + crossing + _widest(graph, units)
    if not is_first:
        need += _after_host_bytes(graph, units)
    if not graph.size.is_on_devices:
        need = max(need + hidden, _visiting_cache_bytes(graph, units, is_first=is_first))
    before_output = masks + (crossing if is_first or copies == 1 else crossing - 2 * hidden)
    return max(need, before_output + logits)


def _crossing_states(graph: Graph, *, is_first: bool) -> int:
    """Hidden states held for what comes in and goes out, in rows of the whole micro-batch."""
    if graph.is_pipelined:
        return 16 if is_first else (11 if graph.is_dry_run else 7)
    return 4 if is_first else 2


def _widest(graph: Graph, units: list[int]) -> int:
    """The widest moment of any layer on one device.

    The last layer of the trunk feeds only the rows that are asked for. Where inputs are held once, the masks are given
    back after the last attention of a device, so the feed-forward behind it uses their room where its parts fit in.
    """
    shape, batch, masks = graph.shape, graph.batch, graph.batch.mask_bytes
    widest = 0
    for unit in units:
        layer = shape.layers[unit]
        widest = max(widest, attention_bytes(batch, layer))
        if unit == graph.trunk - 1:
            continue
        if graph.moved.has(unit):
            widest = max(widest, without_experts_bytes(batch, layer))
            continue
        feed = feed_forward_bytes(batch, layer, is_pipelined=graph.is_pipelined)
        if unit == units[-1] and not graph.is_pipelined and inner_bytes(batch, layer) <= masks:
            feed -= masks
        widest = max(widest, feed)
    if graph.is_pipelined and shape.latent:
        widest += batch.hidden_bytes
    return widest


def _after_host_bytes(graph: Graph, units: list[int]) -> int:
    """What a device takes over from the layers or experts before it, where inputs are held once."""
    if graph.is_pipelined:
        return 0
    shape, hidden, first = graph.shape, graph.batch.hidden_bytes, graph.shape.layers[units[0]]
    more = hidden if shape.latent else 0
    before = units[0] - 1
    if before >= 0 and graph.layout.units[before] is HOST and first.feed.expert:
        more += hidden if first.feed.shared else 4 * hidden
    layer = shape.layers[units[-1]]
    if shape.latent:
        if not graph.moved.experts.isdisjoint(units):
            more += layer.heads * shape.latent.key_length * graph.batch.value_bytes
    elif before in graph.moved.experts:
        if shape.recurrent:
            more += 2 * hidden
        elif graph.size.flash_attention:
            more += _visiting_experts_bytes(graph, units)
    return more


def _visiting_experts_bytes(graph: Graph, units: list[int]) -> int:
    """The experts' outputs arrive from the host one by one; where queries are normed the next attention waits beside."""
    layer, hidden = graph.shape.layers[units[-1]], graph.batch.hidden_bytes
    together = routed_output_bytes(graph.batch, layer) + hidden
    if layer.is_normed:
        together += attention_bytes(graph.batch, layer)
        return max(0, together - _widest(graph, units))
    return max(hidden, together - _widest(graph, units))


def _visiting_cache_bytes(graph: Graph, units: list[int], *, is_first: bool) -> int:
    """Without KV offload the keys and values of a layer come to its device, and queries and results travel.

    How the engine packs them varies with the widths by up to the cache of one layer; beyond `_PACKED_BYTES` that is
    added.
    """
    batch, size, latent = graph.batch, graph.size, graph.shape.latent
    most = 0
    for unit in units:
        layer = graph.shape.layers[unit]
        if not layer.k_width:
            continue
        cells = batch.cells(layer) * size.streams
        visit = cells * (row_bytes(size.k_type, layer.k_width) + row_bytes(size.v_type, layer.v_width))
        if latent:
            feed = inner_bytes(batch, layer) * 3 + routed_output_bytes(batch, layer)
            heads = latent.key_length + 2 * latent.rope + 2 * latent.kv_rank + 2 * latent.key_length
            most = max(most, 2 * visit + feed, layer.heads * heads * batch.value_bytes)
            continue
        queries = (3 if is_first else 4) * layer.query_width * batch.value_bytes
        most = max(most, visit + max(0, visit - _PACKED_BYTES) + queries)
    return batch.mask_bytes + most + (2 if is_first else 3) * batch.hidden_bytes


def _host_bytes(graph: Graph) -> int:
    """The host holds the inputs; layers and experts there need their room too."""
    shape, batch = graph.shape, graph.batch
    hidden, masks, copies = batch.hidden_bytes, batch.mask_bytes, graph.copies
    need = copies * (masks + 2 * hidden) + 2 * hidden
    if shape.recurrent and graph.size.rollback_states and not graph.size.is_on_devices:
        # The states are here, so the layers that write them for every draft token run here.
        need += 3 * shape.recurrent.conv_width * batch.value_bytes
    units = graph.trunk_units(HOST)
    if units:
        widest = 0
        for unit in units:
            layer = shape.layers[unit]
            widest = max(widest, attention_bytes(batch, layer))
            if unit != graph.trunk - 1:
                widest = max(widest, feed_forward_bytes(batch, layer, is_pipelined=False))
        need = masks + 5 * hidden + widest
        if graph.layout.output is HOST:
            need = max(need, masks + 5 * hidden + graph.logits_bytes)
    moved = (graph.moved.experts | graph.moved.dense) - set(units)
    if not moved:
        return need
    widest = max(feed_forward_bytes(batch, shape.layers[unit], is_pipelined=False) for unit in moved)
    if _has_attention_after(graph, min(moved)):
        return max(need, masks + 2 * hidden + widest)
    return max(need, 4 * hidden + widest)


def _has_attention_after(graph: Graph, unit: int) -> bool:
    """Whether another device still waits for the masks when the host runs the experts of this layer."""
    place = graph.layout.units[unit]
    return any(other not in (place, HOST) for other in graph.layout.units[unit : graph.trunk])


def place_mtp_compute(graph: Graph) -> PlacedCompute:
    """The buffers of the context that drafts with the MTP layer: one block on the device that holds it."""
    shape, batch, layout = graph.shape, graph.batch, graph.layout
    placed = PlacedCompute([0] * len(layout.devices))
    if not shape.nextn_layers:
        return placed
    unit = graph.trunk
    layer, place = shape.layers[unit], layout.units[unit]
    hidden, masks, copies = batch.hidden_bytes, batch.mask_bytes, graph.copies
    attention = masks + 3 * hidden + attention_bytes(batch, layer)
    feed = 3 * hidden + feed_forward_bytes(batch, layer, is_pipelined=False) + (4 << 20)
    inputs = copies * (masks + hidden) + hidden
    placed.host_bytes = inputs
    if not graph.size.is_on_devices:
        visit = _visiting_cache_bytes(graph, [unit], is_first=True)
        attention = max(attention, visit)
    if place is HOST:
        placed.host_bytes = max(inputs, attention, feed)
    elif unit in graph.moved.experts:
        placed.device_bytes[place] = attention
        placed.host_bytes = max(inputs, feed)
    else:
        extra = (copies - 1) * masks + (8 * hidden if copies > 1 else 0)
        placed.device_bytes[place] = max(attention, feed, masks + 2 * hidden + graph.logits_bytes) + extra
    if layout.is_shared and place is not HOST:
        placed.device_bytes = [placed.device_bytes[0]] * len(layout.devices)
    return placed
