"""One feed-forward in an arena, in the order in which the engine allocates its tensors."""

from app.placement.arena import Arena
from app.placement.graph import Graph
from app.placement.scratch import choices_bytes, inner_bytes, routed_output_bytes

# Positions and row numbers: small, but they lie between the large tensors and keep their holes apart.
NUMBERS_BYTES = 64


def pack_feed(graph: Graph, arena: Arena, unit: int, *, beside_bytes: int = 0) -> None:
    """Normed states in, gate and up, their product, and down: of every expert that a token uses, or of a dense layer.

    `beside_bytes` came before it and stays meanwhile. The arena is left as it was.
    """
    batch, layer = graph.batch, graph.shape.layers[unit]
    inner = inner_bytes(batch, layer)
    normed, beside = arena.take(batch.hidden_bytes), arena.take(beside_bytes)
    choices = arena.take(choices_bytes(batch, unit))
    pair = arena.take(inner), arena.take(inner)
    arena.free(normed)
    product = arena.take(inner)
    arena.free(*pair)
    output = arena.take(routed_output_bytes(batch, layer) if layer.feed.expert else batch.hidden_bytes)
    arena.free(product, choices, output, beside)
