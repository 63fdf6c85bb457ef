"""Weights that visit a device: work on large batches leaves the host, though the weights are there (`--op-offload`).

For 32 tokens and more the engine gives the products with weights of the host to the first device whose driver takes
them, and copies each matrix there for its product, experts of all kinds included (build 11434,
`ggml_backend_sched_backend_id_from_cur` and `ggml_backend_cuda_device_offload_op`). RPC devices do not take them, and
no device that does was measured: the figures are this model's, on the safe side, and plans say so.
"""

from collections.abc import Sequence

from app.placement.arena import Arena
from app.placement.compute import PlacedCompute
from app.placement.graph import Graph
from app.placement.layers import HOST
from app.placement.scratch import attention_bytes, inner_bytes, routed_output_bytes
from app.placement.weights import UnitVisits

_FEWEST_TOKENS = 32
_NEVER = ("RPC", "CPU", "BLAS")
# Hidden states that cross between the host and a device, as of the first device of any launch.
_CROSSING = 4


def visited_device(graph: Graph) -> int | None:
    """The device that weights of the host visit, by index; None where none takes them or none are there."""
    if graph.batch.tokens < _FEWEST_TOKENS or not _units(graph):
        return None
    names = enumerate(graph.layout.devices)
    return next((index for index, name in names if not name.startswith(_NEVER)), None)


def add_visiting_weights(
    graph: Graph, visits: Sequence[UnitVisits], placed: PlacedCompute, *, nextn: bool = False
) -> None:
    """Make room for one matrix at a time, and what is made with it; of the MTP layers only, with `nextn`.

    The masks and the states that cross are held meanwhile.
    """
    device = visited_device(graph)
    units = [unit for unit in _units(graph) if (unit >= graph.trunk) is nextn]
    if device is None or not units:
        return
    batch, most = graph.batch, 0
    for unit in {(graph.shape.layers[unit], visits[unit]): unit for unit in units}.values():
        most = max(most, _feed_bytes(graph, unit, visits[unit]))
        if graph.layout.units[unit] is HOST:
            most = max(most, attention_bytes(batch, graph.shape.layers[unit]) + visits[unit].other_bytes)
    needed = batch.mask_bytes + _CROSSING * batch.hidden_bytes + most
    placed.device_bytes[device] = max(placed.device_bytes[device], needed)


def _units(graph: Graph) -> list[int]:
    """Layers whose feed-forward, or all of which, is on the host."""
    places = enumerate(graph.layout.units[: graph.shape.block_count])
    return [unit for unit, place in places if place is HOST or graph.moved.has(unit)]


def _feed_bytes(graph: Graph, unit: int, weights: UnitVisits) -> int:
    """Gate, up and down come one after another; each gives its room back when its product is made."""
    arena, batch, layer = Arena(), graph.batch, graph.shape.layers[unit]
    inner = inner_bytes(batch, layer)
    pair = []
    for _ in range(2):
        visitor = arena.take(weights.up_bytes)
        pair.append(arena.take(inner))
        arena.free(visitor)
    product = arena.take(inner)
    arena.free(*pair)
    visitor = arena.take(weights.down_bytes)
    output = arena.take(routed_output_bytes(batch, layer) if layer.feed.expert else batch.hidden_bytes)
    arena.free(visitor, product, output)
    return arena.peak_bytes
