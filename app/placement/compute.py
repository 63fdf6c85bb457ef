"""Compute buffers: what one micro-batch needs while it is worked on, by device.

The scheduler reserves a worst-case graph once. What it then holds on a device comes to: the attention masks and the
hidden states that cross between devices (held four times where batches are pipelined), and the widest moment of the
widest layer. Where experts are on the host, the engine's packing is followed tensor by tensor (`arena`). The other
figures were fitted to dry runs of llama.cpp build 11434; all are checked against them in the tests. Weights and caches
are exact, these are within some tens of MiB.
"""

from dataclasses import dataclass

from app.placement.attention_kinds import PARALLEL
from app.placement.context import row_bytes
from app.placement.device_feed import visited_bytes
from app.placement.graph import Graph
from app.placement.host_feed import moved_feed_bytes
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
    is_visited = is_first and not graph.moved.experts.isdisjoint(units)
    need = masks + crossing + _widest(graph, units, is_visited=is_visited)
    if graph.shape.architecture in PARALLEL:
        need += hidden if is_first or graph.is_pipelined else 2 * hidden
    if is_visited or (graph.shape.recurrent and not graph.moved.experts.isdisjoint(units)):
        need = max(need, visited_bytes(graph, units))
    if not is_first:
        need += _after_host_bytes(graph, units)
    if not graph.size.is_on_devices:
        need = max(need + hidden, visiting_cache_bytes(graph, units, is_first=is_first))
        if is_visited:
            need = max(need, masks + crossing + _visits_bytes(graph, units))
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


def _widest(graph: Graph, units: list[int], *, is_visited: bool = False) -> int:
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
        if is_visited:
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
    if first.feed.used == 1 and units[0] not in graph.moved.experts:
        # The output of a single expert is copied once more.
        more += hidden
    before = units[0] - 1
    if before >= 0 and graph.layout.units[before] is HOST and first.feed.expert:
        more += _after_host_layers_bytes(graph, units)
    layer = shape.layers[units[-1]]
    if not graph.size.flash_attention and not shape.latent:
        # What came in, and what is summed up behind a visit, lies in the way of the scores.
        visits = 4 if layer.feed.shared else 3
        more += hidden if graph.moved.experts.isdisjoint(units) else (1 + visits) * hidden
    if shape.latent:
        if not graph.moved.experts.isdisjoint(units):
            more += layer.heads * shape.latent.key_length * graph.batch.value_bytes
    elif before in graph.moved.experts:
        if shape.recurrent:
            more += 2 * hidden
        elif graph.size.flash_attention:
            more += _visiting_experts_bytes(graph, units)
            if units[0] in graph.moved.experts:
                more = max(more, _own_feeds_bytes(graph, units) - _widest(graph, units))
    return more


def _after_host_layers_bytes(graph: Graph, units: list[int]) -> int:
    """Behind layers of the host: its states come in apart; and if experts are there too, what these put out visits."""
    batch, hidden, layers = graph.batch, graph.batch.hidden_bytes, [graph.shape.layers[unit] for unit in units]
    is_shared, widest = bool(layers[0].feed.shared), _widest(graph, units)
    if units[0] not in graph.moved.experts:
        return hidden if is_shared else 4 * hidden
    need = 2 * hidden + routed_output_bytes(batch, layers[0])
    if layers[0].is_normed and not is_shared:
        need = max(need, hidden + routed_output_bytes(batch, layers[0]) + attention_bytes(batch, layers[0]))
    return max(0, need - widest, _own_feeds_bytes(graph, units) - widest)


def _own_feeds_bytes(graph: Graph, units: list[int]) -> int:
    """Layers of a device that have their experts, behind ones that have not: the states lie apart."""
    own = [graph.shape.layers[unit] for unit in units if not graph.moved.has(unit) and unit != graph.trunk - 1]
    return max(
        (
            (1 if layer.feed.shared else 4) * graph.batch.hidden_bytes
            + feed_forward_bytes(graph.batch, layer, is_pipelined=False, is_alone=True)
            for layer in own
        ),
        default=0,
    )


def _visiting_experts_bytes(graph: Graph, units: list[int]) -> int:
    """Experts' outputs arrive from the host one by one; where queries are normed the next attention waits beside."""
    layer, hidden = graph.shape.layers[units[-1]], graph.batch.hidden_bytes
    together = routed_output_bytes(graph.batch, layer) + hidden
    if layer.is_normed:
        together += attention_bytes(graph.batch, layer)
        return max(0, together - _widest(graph, units))
    return max(hidden, together - _widest(graph, units))


def visiting_cache_bytes(graph: Graph, units: list[int], *, is_first: bool) -> int:
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


def _visits_bytes(graph: Graph, units: list[int]) -> int:
    """Without KV offload the masks come behind the first layer's queries, and the experts' outputs behind both.

    The cache of a layer takes the room of queries that are done with, unless it is wider than they.
    """
    batch, size, layer = graph.batch, graph.size, graph.shape.layers[units[0]]
    cells, queries = batch.cells(layer) * size.streams, layer.query_width * batch.value_bytes
    keys, values = row_bytes(size.k_type, layer.k_width) * cells, row_bytes(size.v_type, layer.v_width) * cells
    own = [graph.shape.layers[unit] for unit in units if not graph.moved.has(unit)]
    apart = [feed_forward_bytes(batch, feeding, is_pipelined=False, is_alone=True) for feeding in own]
    beside = [feed_forward_bytes(batch, feeding, is_pipelined=False) for feeding in own]
    packed = keys + values if keys > queries and (layer.is_normed or own) else 0
    return 2 * queries + packed + routed_output_bytes(batch, layer) + max(apart, default=0) - max(beside, default=0)


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
    return max(need, moved_feed_bytes(graph)) + _host_states_bytes(graph)


def _host_states_bytes(graph: Graph) -> int:
    """Without KV offload states are here, and what writes them: for every draft token, or in a scan for every token."""
    recurrent = graph.shape.recurrent
    if recurrent is None or graph.size.is_on_devices:
        return 0
    if recurrent.is_scan:
        return recurrent.state_values * graph.batch.value_bytes
    return 3 * recurrent.conv_width * graph.batch.value_bytes if graph.size.rollback_states else 0
