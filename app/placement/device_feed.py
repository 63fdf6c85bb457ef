"""A device's buffer where the experts of some of its layers are on the host.

What these put out visits the device, all experts of a token side by side. A device fetches an attention mask when its
work comes to a layer that attends with it. That may be behind such a visit: the mask then lies beyond it, and beyond
the mask lies what does not fit into the hole that the visit leaves.
"""

from collections.abc import Iterator, Sequence

from app.placement.arena import Arena, Room
from app.placement.feed_packing import NUMBERS_BYTES, pack_feed
from app.placement.graph import Graph
from app.placement.scratch import routed_output_bytes, score_bytes


def visited_bytes(graph: Graph, units: Sequence[int]) -> int:
    """What the first device needs for visits, for feed-forwards of its own and, without flash attention, for scores.

    `units` are its layers in order, of which some have their experts on the host.
    """
    batch, layers = graph.batch, graph.shape.layers
    arena, masks, seen = Arena(), dict[bool, Room](), set[object]()
    last = {layers[unit].is_windowed: unit for unit in units if layers[unit].query_width}
    arena.take(batch.hidden_bytes)
    # Two hidden states that came in with others; what lies between them and the masks keeps their holes apart.
    left = arena.take(2 * batch.hidden_bytes - NUMBERS_BYTES)
    arena.take(NUMBERS_BYTES)
    is_scattered = False
    for at, split in enumerate(_splits(graph, units)):
        fetched = [kind for kind in _kinds(graph, split) if kind not in masks and last[kind] >= split[0]]
        # A shared expert waits with its input, and the sum of the others then finds no place before the mask.
        is_kept = bool(at and fetched and layers[split[0] - 1].feed.shared)
        is_scattered |= is_kept
        normed = arena.take(batch.hidden_bytes if is_kept else 0)
        masks |= {kind: arena.take(batch.mask_bytes_of(is_windowed=kind)) for kind in fetched}
        states = arena.take(batch.hidden_bytes)
        arena.free(left, normed)
        if at and not is_kept:
            arena.free(states)
        for unit in split:
            layer = layers[unit]
            is_last = bool(layer.query_width) and last[layer.is_windowed] == unit
            # A layer leaves the buffer as it was: one like it needs no second look.
            alike = layer, graph.moved.has(unit), len(masks), is_last
            if alike not in seen:
                seen.add(alike)
                _run(graph, arena, unit, masks.pop(layer.is_windowed) if is_last else None, is_scattered=is_scattered)
            if is_kept and unit == split[0]:
                arena.free(states)
        left = arena.take(routed_output_bytes(batch, layers[split[-1]]))
    return arena.peak_bytes


def _run(graph: Graph, arena: Arena, unit: int, mask: Room | None, *, is_scattered: bool) -> None:
    """Scores, then the feed-forward; `mask` is one that no later layer needs."""
    layer = graph.shape.layers[unit]
    # Normed states and the sum lie beside; hybrid models gate their attention, so there is one more width of queries.
    beside = [arena.take(graph.batch.hidden_bytes) for _ in range(2 if is_scattered else 0)]
    widths = 3 if graph.shape.recurrent else 2
    queries = [arena.take(layer.query_width * graph.batch.value_bytes) for _ in range(widths)]
    arena.free(arena.take(score_bytes(graph.batch, layer)), *beside, *queries)
    if mask is not None:
        arena.free(mask)
    # The last layer of the trunk sees only the rows that are asked for.
    if not graph.moved.has(unit) and unit != graph.trunk - 1:
        pack_feed(graph, arena, unit, beside_bytes=graph.batch.hidden_bytes if is_scattered else 0)


def _kinds(graph: Graph, units: Sequence[int]) -> Sequence[bool]:
    """The masks that these layers attend with, of windows or of all, in the order of their first use."""
    layers = (graph.shape.layers[unit] for unit in units)
    return list(dict.fromkeys(layer.is_windowed for layer in layers if layer.query_width))


def _splits(graph: Graph, units: Sequence[int]) -> Iterator[list[int]]:
    """The layers between the host's turns: each part ends with a layer whose experts are there."""
    split: list[int] = []
    for unit in units:
        split.append(unit)
        if unit in graph.moved.experts:
            yield split
            split = []
    if split:
        yield split
