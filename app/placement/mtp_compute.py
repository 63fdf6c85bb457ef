"""Compute buffers of the context that drafts with the MTP layer: one block, on the device that holds it."""

from app.placement.arena import Arena
from app.placement.compute import PlacedCompute, visiting_cache_bytes
from app.placement.feed_packing import NUMBERS_BYTES, pack_feed
from app.placement.graph import Graph
from app.placement.layers import HOST
from app.placement.scratch import attention_bytes, feed_forward_bytes, routed_output_bytes


def place_mtp_compute(graph: Graph) -> PlacedCompute:
    """The buffers of the MTP context; nothing for a model without such layers."""
    shape, batch, layout = graph.shape, graph.batch, graph.layout
    placed = PlacedCompute([0] * len(layout.devices))
    if not shape.nextn_layers:
        return placed
    unit = graph.trunk
    layer, place = shape.layers[unit], layout.units[unit]
    hidden, masks, copies = batch.hidden_bytes, batch.mask_bytes, graph.copies
    # A block with a table of its own looks tokens up on its device.
    has_table = f"blk.{unit}.nextn.embed_tokens.weight" in shape.model.tensors
    inputs = copies * (masks + hidden) + (0 if has_table else hidden)
    placed.host_bytes = inputs
    attention = _attention_bytes(graph, unit)
    if not graph.size.is_on_devices:
        attention = max(attention, visiting_cache_bytes(graph, [unit], is_first=True))
    feed = max(
        3 * hidden + feed_forward_bytes(batch, layer, is_pipelined=False) + (4 << 20),
        _feed_bytes(graph, unit, is_beside=True),
    )
    if place is HOST:
        placed.host_bytes = max(inputs, attention, feed)
    elif unit in graph.moved.experts:
        placed.device_bytes[place] = max(attention, 3 * hidden + routed_output_bytes(batch, layer))
        placed.host_bytes = max(inputs, _feed_bytes(graph, unit, is_beside=False))
    else:
        logits = masks + 2 * hidden + graph.logits_bytes
        if graph.is_pipelined:
            attention, feed = attention + (copies - 1) * masks, feed + copies * masks - 3 * hidden // 2
            attention, feed, logits = (n_bytes + 8 * hidden for n_bytes in (attention, feed, logits))
        placed.device_bytes[place] = max(attention, feed, logits)
    if layout.is_shared and place is not HOST:
        placed.device_bytes = [placed.device_bytes[0]] * len(layout.devices)
    return placed


def _attention_bytes(graph: Graph, unit: int) -> int:
    shape, batch, layer = graph.shape, graph.batch, graph.shape.layers[unit]
    n_bytes = batch.mask_bytes + 3 * batch.hidden_bytes + attention_bytes(batch, layer)
    if graph.size.flash_attention and not (shape.recurrent or shape.latent):
        # The results take the room of the queries.
        n_bytes -= batch.hidden_bytes + layer.query_width * batch.value_bytes
    return n_bytes


def _feed_bytes(graph: Graph, unit: int, *, is_beside: bool) -> int:
    """The block's feed-forward, in and behind the room of its masks; `is_beside` its attention's results, or apart."""
    arena, batch = Arena(), graph.batch
    entered = arena.take(batch.mask_bytes + batch.hidden_bytes)
    arena.take(NUMBERS_BYTES)
    arena.free(entered)
    arena.take(batch.hidden_bytes if is_beside else 0)
    pack_feed(graph, arena, unit)
    return arena.peak_bytes
