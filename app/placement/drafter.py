"""The drafter in full: a draft model with its cache and buffers, or the context of MTP layers in the target.

A draft model inherits the target's context (tokens, slots, unified mode, batch, flash attention, KV offload) and split,
not its offloaded layers, cache types and overrides.
"""

from dataclasses import dataclass, replace

from app.inventory.models import ModelKind
from app.placement.compute import PlacedCompute, place_compute
from app.placement.context import ContextSize, PlacedContext, place_context
from app.placement.graph import Graph, Moved
from app.placement.layers import HOST, Layout
from app.placement.mtp_compute import place_mtp_compute
from app.placement.shape import ModelShape
from app.placement.weights import Overrides, PlacedWeights, WeightTable, place_weights
from app.profiles.profile import CacheType

# These are fed the target's hidden states, and hold logits for every token of a micro-batch.
READING_KINDS = frozenset({ModelKind.DFLASH, ModelKind.DSPARK, ModelKind.EAGLE3})


@dataclass(frozen=True, slots=True)
class PlacedDrafter:
    """Bytes of a drafter over the devices of its own layout."""

    layout: Layout
    weights: PlacedWeights
    context: PlacedContext
    compute: PlacedCompute


def inherited_size(target: ContextSize, k_type: CacheType, v_type: CacheType, outputs: int) -> ContextSize:
    """The draft context: as many tokens as the target has in the end, cache types of its own, nothing to undo."""
    return replace(target, tokens=target.total_tokens, k_type=k_type, v_type=v_type, rollback_states=0, outputs=outputs)


def place_draft_model(
    shape: ModelShape,
    table: WeightTable,
    layout: Layout,
    overrides: Overrides,
    size: ContextSize,
    *,
    is_mtp: bool,
    is_dry_run: bool = False,
) -> PlacedDrafter:
    """A draft model from a file of its own. With `is_mtp` only its MTP layers run.

    Tensors that it lacks are the target's, and weigh nothing here; an assistant reads the target's cache and has none.
    """
    kind = shape.model.kind
    weights = place_weights(shape, table, layout, overrides, with_nextn=is_mtp)
    graph = Graph(shape, size, layout, moved_by(shape, weights, overrides), is_dry_run)
    runs_nextn = is_mtp and shape.nextn_layers > 0
    context = place_context(shape, size, layout, nextn=runs_nextn)
    if kind is ModelKind.ASSISTANT:
        context = PlacedContext([0] * len(layout.devices), [0] * len(layout.devices))
    if kind in READING_KINDS:
        compute = _reading_compute(graph)
    elif runs_nextn:
        compute = place_mtp_compute(graph)
    else:
        compute = place_compute(graph)
    return PlacedDrafter(layout, weights, context, compute)


def place_mtp(target: Graph, size: ContextSize) -> tuple[PlacedContext, PlacedCompute]:
    """The second context on the target's own MTP layers; their weights are counted with the target."""
    graph = replace(target, size=size)
    return place_context(target.shape, size, target.layout, nextn=True), place_mtp_compute(graph)


def moved_by(shape: ModelShape, weights: PlacedWeights, overrides: Overrides) -> Moved:
    """What the placed weights mean for the graph."""
    return Moved(frozenset(weights.experts_on_host), frozenset(weights.dense_on_host), overrides.is_any)


def _reading_compute(graph: Graph) -> PlacedCompute:
    """DFlash, DSpark and EAGLE-3 are reserved logits of the whole vocabulary for every token of a micro-batch.

    Once loaded the engine reserves again with the hidden states on, and then holds those logits twice: the dry run
    never sees that. (EAGLE-3 spreads the logits of a smaller vocabulary of its own over the whole one.)
    """
    ordinary = place_compute(replace(graph, is_dry_run=True))
    batch, copies, layout = graph.batch, graph.copies, graph.layout
    hidden, masks = batch.hidden_bytes, graph.copies * batch.mask_bytes
    logits = graph.shape.vocabulary_size * batch.tokens * 4
    ordinary.host_bytes = max(copies * batch.mask_bytes + hidden, _host_layers_bytes(graph, ordinary.host_bytes))
    is_first = not graph.trunk_units(HOST)
    for device in layout.used:
        has_layers = bool(graph.trunk_units(device))
        need = ordinary.device_bytes[device]
        if has_layers and is_first and graph.is_pipelined:
            # The hidden states come from the target and are not looked up: less is held for them.
            need -= 9 * hidden
        if device == layout.output:
            if graph.is_pipelined:
                head = (masks + 9 * hidden if has_layers else 5 * hidden) + logits
            else:
                head = 2 * hidden + logits
            need = max(need, head) if has_layers else head
            need += 0 if graph.is_dry_run else logits
        ordinary.device_bytes[device] = need
        is_first = is_first and not has_layers
    if layout.output is HOST:
        ordinary.host_bytes = max(ordinary.host_bytes, 2 * hidden + logits) + (0 if graph.is_dry_run else logits)
    return ordinary


def _host_layers_bytes(graph: Graph, ordinary_bytes: int) -> int:
    return ordinary_bytes if graph.trunk_units(HOST) else 0


def add_read_states(graph: Graph, compute: PlacedCompute) -> None:
    """What a target needs more once a drafter reads the inputs of its layers: seen at the first request only."""
    more = 3
    for device in graph.layout.used:
        if graph.trunk_units(device):
            compute.device_bytes[device] += more * graph.batch.hidden_bytes
            more = 2
    if graph.trunk_units(HOST):
        compute.host_bytes += 2 * graph.batch.hidden_bytes
