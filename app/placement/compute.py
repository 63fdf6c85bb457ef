"""Compute buffers: what one micro-batch needs while it is worked on, by device.

The scheduler reserves a worst-case graph once. What it then holds on a device comes to: the attention masks and the
hidden states that cross between devices (held four times where batches are pipelined), and the widest moment of the
widest layer. The figures below were fitted to dry runs of llama.cpp build 11434 and are checked against them in the
tests; weights and caches are exact, these are within some tens of MiB.
"""

from dataclasses import dataclass

from app.placement.attention_kinds import PARALLEL
from app.placement.context import row_bytes
from app.placement.graph import Graph
from app.placement.layers import HOST
from app.placement.scratch import (
    attention_bytes,
    feed_forward_bytes,
    index_scores_bytes,
    inner_bytes,
    routed_output_bytes,
    without_experts_bytes,
)

_PACKED_BYTES = 256 << 20


@dataclass(slots=True)
class PlacedCompute:
    """Bytes by index of the device, and on the host."""

    device_bytes: list[int]
    host_bytes: int = 0


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
        return logits + (10 * hidden if graph.shape.compressed else min(2 * hidden, 16 << 20)) if logits else 0
    crossing = _crossing_states(graph, is_first=is_first) * hidden
    need = masks + crossing + _widest(graph, units)
    if graph.shape.architecture in PARALLEL:
        need += hidden if is_first or graph.is_pipelined else 2 * hidden
    if not is_first:
        need += _after_host_bytes(graph, units)
    if not graph.size.is_on_devices:
        need = max(need + hidden, _visiting_cache_bytes(graph, units, is_first=is_first))
    before_output = masks + (crossing if is_first or copies == 1 else crossing - 2 * hidden)
    return max(need, before_output + logits)


def _crossing_states(graph: Graph, *, is_first: bool) -> int:
    """Hidden states held for what comes in and goes out, in rows of the whole micro-batch."""
    compressed = graph.shape.compressed
    if graph.is_pipelined:
        # Whether the dry run counts too much with several hidden states for each token was not measured.
        following = 11 if graph.is_dry_run or compressed else 7
        return 16 if is_first else following * (compressed.streams if compressed else 1)
    if compressed:
        # Several hidden states for each token travel between devices, and one device works on as many.
        return (4 if is_first else 5) * compressed.streams
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
        if unit == units[-1] and not graph.is_pipelined:
            feed -= max(0, masks - inner_bytes(batch, layer))
        widest = max(widest, feed)
    if graph.is_pipelined and shape.latent:
        widest += batch.hidden_bytes
    return widest + index_scores_bytes(batch)


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
    """Experts' outputs arrive from the host one by one; where queries are normed the next attention waits beside."""
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
    """The host holds the inputs; layers, experts and states there need their room too."""
    shape, batch = graph.shape, graph.batch
    hidden, masks, copies = batch.hidden_bytes, batch.mask_bytes, graph.copies
    inputs, entered = copies * (masks + 2 * hidden) + 2 * hidden, 5 * hidden
    if shape.compressed:
        inputs, entered = copies * (masks + hidden) + hidden, 6 * shape.compressed.streams * hidden
    if shape.architecture in PARALLEL:
        entered += hidden
    need = inputs
    units = graph.trunk_units(HOST)
    if units:
        widest = graph.logits_bytes if graph.layout.output is HOST else 0
        for unit in units:
            layer = shape.layers[unit]
            widest = max(widest, attention_bytes(batch, layer))
            if unit != graph.trunk - 1:
                widest = max(widest, feed_forward_bytes(batch, layer, is_pipelined=False))
        need = masks + entered + widest
    moved = (graph.moved.experts | graph.moved.dense) - set(units)
    if moved:
        waits = _has_attention_after(graph, min(moved))
        layers = (shape.layers[unit] for unit in moved)
        widest = max(feed_forward_bytes(batch, layer, is_pipelined=False, is_alone=not waits) for layer in layers)
        need = max(need, (masks + 2 * hidden if waits else 4 * hidden) + widest)
    return need + _host_states_bytes(graph)


def _host_states_bytes(graph: Graph) -> int:
    """Without KV offload states are here, and what writes them: for every draft token, or in a scan for every token."""
    recurrent = graph.shape.recurrent
    if recurrent is None or graph.size.is_on_devices:
        return 0
    if recurrent.is_scan:
        return recurrent.state_values * graph.batch.value_bytes
    return 3 * recurrent.conv_width * graph.batch.value_bytes if graph.size.rollback_states else 0


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
        logits = masks + 2 * hidden + graph.logits_bytes
        if graph.is_pipelined:
            attention, feed = attention + (copies - 1) * masks, feed + copies * masks - 3 * hidden // 2
            attention, feed, logits = (n_bytes + 8 * hidden for n_bytes in (attention, feed, logits))
        placed.device_bytes[place] = max(attention, feed, logits)
    if layout.is_shared and place is not HOST:
        placed.device_bytes = [placed.device_bytes[0]] * len(layout.devices)
    return placed
