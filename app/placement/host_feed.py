"""The host's buffer where it works on the feed-forward of layers that are on devices, as overrides ask for.

All that a launch reads comes in on the host: hidden states, and the attention masks. A mask stays until each device
has fetched it, when its work comes to a layer that attends with it. So the experts of a hybrid model's first layers
find the masks still there; later ones find the hole that a mask left, and what does not fit into it lies behind.
"""

from app.placement.arena import Arena, Room
from app.placement.feed_packing import NUMBERS_BYTES, pack_feed
from app.placement.graph import Graph
from app.placement.layers import HOST


def moved_feed_bytes(graph: Graph) -> int:
    """What the host needs for the inputs and all that was moved to it; 0 where nothing was."""
    units = (graph.moved.experts | graph.moved.dense) - set(graph.trunk_units(HOST))
    if not units:
        return 0
    arena = Arena()
    waiting = _waiting(graph)
    masks = _take_inputs(graph, arena, list(waiting))
    packed: set[object] = set()
    # The last layer of the trunk sees only the rows that are asked for.
    for unit in range(graph.trunk - 1):
        layer, place = graph.shape.layers[unit], graph.layout.units[unit]
        if place is HOST:
            continue
        if layer.query_width and layer.is_windowed in masks:
            waiting[layer.is_windowed].discard(place)
            if not waiting[layer.is_windowed]:
                arena.free(masks.pop(layer.is_windowed))
        # A layer leaves the buffer as it was: one like it needs no second look.
        alike = layer.feed, unit in graph.moved.experts, len(masks)
        if unit in units and alike not in packed:
            packed.add(alike)
            pack_feed(graph, arena, unit)
    return arena.peak_bytes


def _waiting(graph: Graph) -> dict[bool, set[int]]:
    """Which devices have layers that attend with each mask (of windows, or of all), in the order of the graph."""
    waiting: dict[bool, set[int]] = {}
    for unit, layer in enumerate(graph.shape.layers[: graph.trunk]):
        place = graph.layout.units[unit]
        if layer.query_width and place is not HOST:
            waiting.setdefault(layer.is_windowed, set()).add(place)
    return waiting


def _take_inputs(graph: Graph, arena: Arena, kinds: list[bool]) -> dict[bool, Room]:
    """Place what comes in, until the first device has what it works on; returns the masks, which are still there."""
    hidden = graph.batch.hidden_bytes
    # States that a caller may hand over instead of tokens are never given back.
    arena.take(hidden)
    entering = [arena.take(hidden)]
    masks = {is_windowed: arena.take(graph.batch.mask_bytes_of(is_windowed=is_windowed)) for is_windowed in kinds}
    # Masks of other kinds, and the rows that are asked for, are read to the very end.
    arena.take(graph.batch.mask_bytes - sum(n_bytes for _, n_bytes in masks.values()))
    arena.take(NUMBERS_BYTES)
    entering += [arena.take(hidden), arena.take(hidden)]
    arena.free(*entering)
    return masks
