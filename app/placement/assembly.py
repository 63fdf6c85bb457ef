"""Assembly: target, drafter and extras of one launch, placed one after another into a ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from app.inventory.models import ModelFile, ModelKind
from app.placement import extras
from app.placement.adapters import place_adapters
from app.placement.budgets import HOST_NAME, LayerSpan
from app.placement.case import LaunchCase
from app.placement.compute import PlacedCompute, place_compute
from app.placement.context import ContextSize, PlacedContext, place_context
from app.placement.drafter import READING_KINDS, add_read_states, inherited_size, moved_by, place_draft_model, place_mtp
from app.placement.graph import Graph
from app.placement.layers import HOST, Layout, assign
from app.placement.ledger import Ledger
from app.placement.op_offload import add_visiting_weights, visited_device
from app.placement.options import EngineOptions
from app.placement.resolve import NO_DEVICE, ResolvedLaunch
from app.placement.shape import ModelShape, shape_of
from app.placement.weights import (
    Overrides,
    PlacedWeights,
    WeightTable,
    device_of_buffer,
    parse_override,
    place_weights,
    weight_table,
)
from app.profiles.profile import CacheType
from app.speculative.parameters import Method, longest_draft

_READING_METHODS = frozenset({Method.DFLASH, Method.DSPARK, Method.EAGLE3})
# Their drafts are undone by states kept beside the current one, where the architecture can.
_ROLLED_BACK = _READING_METHODS | {Method.MTP}
_UNPROVEN_BYTES, _UNPROVEN_DIVISOR = 64 << 20, 4


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model as plans use it: made once, for as many plans as are wanted."""

    shape: ModelShape
    table: WeightTable


def planned_model(model: ModelFile) -> PlannedModel:
    """Read everything that plans need from a header."""
    shape = shape_of(model)
    return PlannedModel(shape, weight_table(shape))


class Assembly:
    """One launch, placed part by part: the target first, since drafters follow it."""

    def __init__(
        self,
        case: LaunchCase,
        resolved: ResolvedLaunch,
        options: EngineOptions,
        target: PlannedModel,
        ledger: Ledger,
        *,
        is_dry_run: bool,
    ) -> None:
        placement = case.profile.placement
        self._case, self._resolved, self._options, self._ledger = case, resolved, options, ledger
        self._is_dry_run = is_dry_run
        self._target = target
        self._methods = case.profile.speculation.methods
        self._overrides = Overrides(
            placement.cpu_moe_layers,
            options.cpu_ffn_layers,
            tuple(
                (pattern, device_of_buffer(buffer, case.machine.devices))
                for text in placement.override_tensor
                for pattern, buffer in parse_override(text)
            ),
        )
        self._layout = assign(
            target.shape.unit_count,
            resolved.devices,
            placement.gpu_layers,
            placement.split_mode,
            placement.tensor_split,
            placement.main_gpu,
            [ledger.free_bytes(name) for name in resolved.devices],
        )
        self._size = self._target_size()
        self._weights = place_weights(
            target.shape, target.table, self._layout, self._overrides, with_nextn=Method.MTP in self._methods
        )
        self._graph = Graph(
            target.shape,
            self._size,
            self._layout,
            moved_by(target.shape, self._weights, self._overrides),
            is_dry_run,
        )

    @property
    def output_device(self) -> str:
        """Where the target's output is."""
        output = self._layout.output
        return HOST_NAME if output is HOST else self._layout.devices[output]

    def spans(self) -> list[LayerSpan]:
        """The target's layers by neighbours in one place. Devices that share every layer are each listed with all."""
        spans = []
        for place, group in groupby(range(self._target.shape.block_count), key=lambda unit: self._layout.units[unit]):
            units = list(group)
            moved = sum(unit in self._weights.experts_on_host for unit in units)
            if place is HOST:
                names: tuple[str, ...] = (HOST_NAME,)
            else:
                names = self._layout.devices if self._layout.is_shared else (self._layout.devices[place],)
            spans += [LayerSpan(name, units[0], units[-1], moved) for name in names]
        return spans

    def impossible(self) -> Iterator[str]:
        """Why the engine would exit while loading, as far as only the layout tells."""
        if self._layout.splits_rows and self._layout.used:
            for name in self._layout.devices:
                if not extras.splits_rows(name):
                    yield f"split mode row: {name} does not support split buffers"

    def place_target(self) -> None:
        """Weights, caches and buffers of the target."""
        shape, layout = self._target.shape, self._layout
        self._add_weights("weights", layout, self._weights)
        self._add_context(layout, place_context(shape, self._size, layout), "kv_cache", "recurrent_state")
        compute = place_compute(self._graph)
        if not self._is_dry_run and not _READING_METHODS.isdisjoint(self._methods):
            add_read_states(self._graph, compute)
        if self._options.offloads_ops:
            add_visiting_weights(self._graph, self._target.table.visits, compute)
        self._add_compute("compute", shape, layout, compute)

    def unproven(self) -> Iterator[str]:
        """What is planned by the engine's source, because no device of that kind was measured."""
        visited = visited_device(self._graph) if self._options.offloads_ops else None
        if visited is not None:
            name = self._layout.devices[visited]
            yield f"op offload: room on {name} for weights of the host that visit it; such a device was not measured"

    def place_drafter(self, draft: PlannedModel | None) -> list[str]:
        """The draft model, or the context of the target's MTP layers; what is not known of it."""
        method = self._case.profile.speculation.method
        if method.takes_draft_model and self._resolved.draft_device is not None:
            if draft is None and self._case.draft is not None:
                draft = planned_model(self._case.draft)
            if draft is None:
                return ["the draft model cannot be read: it is not planned"]
            self._place_draft_model(draft, is_mtp=method is Method.MTP)
            return [f"draft: {what}" for what in draft.shape.unknown]
        if method is Method.MTP:
            size = inherited_size(self._size, "f16", "f16", self._size.slots)
            context, compute = place_mtp(self._graph, size)
            if self._options.offloads_ops:
                add_visiting_weights(self._graph, self._target.table.visits, compute, nextn=True)
            self._add_context(self._layout, context, "draft_kv_cache", "draft_kv_cache")
            self._add_compute("draft_compute", self._target.shape, self._layout, compute)
        return []

    def place_extras(self, projector: ModelFile | None) -> None:
        """Driver contexts, the projector, and what the server keeps on the host."""
        shape, size, ledger = self._target.shape, self._size, self._ledger
        projector_device = self._projector_device() if projector is not None else None
        ledger.add("projector", projector_device, extras.projector_bytes(projector))
        if self._case.adapters:
            # Under weights and compute they would be taken for what the engine's dry run is to confirm.
            beside = place_adapters(self._case.adapters, shape, self._layout, self._overrides, size)
            ledger.add_all("overhead", self._layout.devices, beside.device_bytes, beside.host_bytes)
        cached = self._options.expert_cache_bytes if self._layout.used else 0
        for share, name in zip(self._layout.shares, self._layout.devices, strict=True):
            ledger.add("overhead", name, round(cached * share / sum(self._layout.shares)))
        for name in ledger.used():
            overhead = extras.context_bytes(name)
            if name in self._layout.devices:
                overhead += extras.pool_bytes(name, shape, size)
            ledger.add("overhead", name, overhead)
        ledger.add("overhead", None, extras.output_rows_bytes(shape, size, self._states_read()))
        ledger.add("host_caches", None, self._resolved.prompt_cache_bytes)
        ledger.add("host_caches", None, extras.checkpoint_bytes(shape, size, self._options.context_checkpoints))

    def _target_size(self) -> ContextSize:
        context, speculation = self._case.profile.context, self._case.profile.speculation
        longest = max(
            (
                longest_draft(method, speculation.draft_tokens_max, speculation.ngram.draft_length_max)
                for method in self._methods
            ),
            default=0,
        )
        batch = min(context.batch_size, self._resolved.context_size)
        outputs = batch if self._options.keeps_all_outputs else min(batch, context.slots * (1 + longest))
        undoes = self._target.shape.undoes_drafts_by_state and not _ROLLED_BACK.isdisjoint(self._methods)
        return ContextSize(
            tokens=self._resolved.context_size,
            slots=context.slots,
            is_unified=context.unified_kv,
            k_type=context.k_type,
            v_type=context.v_type,
            batch_size=context.batch_size,
            ubatch_size=context.ubatch_size,
            flash_attention=context.flash_attention != "off",
            is_on_devices=self._options.kv_on_devices,
            full_windows=self._options.full_windows,
            rollback_states=speculation.draft_tokens_max if undoes else 0,
            outputs=outputs,
        )

    def _place_draft_model(self, draft: PlannedModel, *, is_mtp: bool) -> None:
        said = self._case.profile.speculation.draft
        device = self._resolved.draft_device
        k_type: CacheType = said.k_type if said else "f16"
        v_type: CacheType = said.v_type if said else "f16"
        layers = self._resolved.draft_gpu_layers
        layout = assign(
            draft.shape.unit_count,
            () if device in (None, NO_DEVICE) else (str(device),),
            "all" if layers is None else layers,
        )
        placed = place_draft_model(
            draft.shape,
            draft.table,
            layout,
            Overrides(said.cpu_moe_layers if said else 0),
            inherited_size(self._size, k_type, v_type, self._size.slots),
            is_mtp=is_mtp,
            is_dry_run=self._is_dry_run,
        )
        self._add_weights("draft_weights", layout, placed.weights)
        self._add_context(layout, placed.context, "draft_kv_cache", "draft_kv_cache")
        self._add_compute("draft_compute", draft.shape, layout, placed.compute)

    def _states_read(self) -> int:
        """Hidden states for each token of a batch that go through the host to the drafter."""
        if Method.MTP in self._methods:
            return 1
        draft = self._case.draft
        if draft is None or draft.kind not in READING_KINDS:
            return 0
        return len(draft.target_layers or ()) or 3

    def _projector_device(self) -> str | None:
        """The engine puts it on its first device, whatever the layers use."""
        devices = self._case.machine.device_names
        return devices[0] if devices and self._options.projector_on_device and self._resolved.devices else None

    def _add_weights(self, term: str, layout: Layout, weights: PlacedWeights) -> None:
        self._ledger.add_all(term, layout.devices, weights.device_bytes, weights.host_bytes)
        if not self._options.maps_files or self._has_integrated(layout):
            return
        repacks = self._options.repacks and not (self._options.pinned_host and extras.has_pinned_buffer(layout.devices))
        self._ledger.map_from_file(weights.host_bytes - (weights.repacked_bytes if repacks else 0))

    def _has_integrated(self, layout: Layout) -> bool:
        """With such a device the engine reads weights into memory instead of mapping them."""
        return any(device.integrated and device.name in layout.devices for device in self._case.machine.devices)

    def _add_context(self, layout: Layout, placed: PlacedContext, kv: str, state: str) -> None:
        self._ledger.add_all(kv, layout.devices, placed.kv_device_bytes, placed.kv_host_bytes)
        self._ledger.add_all(state, layout.devices, placed.state_device_bytes, placed.state_host_bytes)

    def _add_compute(self, term: str, shape: ModelShape, layout: Layout, placed: PlacedCompute) -> None:
        """Of architectures that were never measured a bound is taken: a quarter more, or 64 MiB."""
        device_bytes, host_bytes = placed.device_bytes, placed.host_bytes
        if shape.unknown and not self._is_dry_run:
            device_bytes = [_bound(n_bytes) for n_bytes in device_bytes]
            host_bytes = _bound(host_bytes)
        self._ledger.add_all(term, layout.devices, device_bytes, host_bytes)


def unknowns(case: LaunchCase, options: EngineOptions, target: ModelShape) -> Iterator[str]:
    """What cannot be told of a launch from headers and flags."""
    yield from target.unknown
    placement = case.profile.placement
    if placement.fit:
        yield "fit: the engine may change context, layers and split before it loads"
    if placement.split_mode == "row":
        yield "split mode row: how rows of each matrix are rounded to devices"
    if placement.split_mode == "tensor":
        yield "split mode tensor: how heads and rows are rounded to shares; buffers are counted in full on every device"
    if case.profile.projector is not None:
        yield "the projector's buffers: a bound for the largest image is taken"
    if case.adapters:
        yield "adapters: the engine's dry run does not see them, and of their products a bound is taken"
    if not options.kv_on_devices:
        yield "without KV offload, how the cache of a layer is packed on its device"
    if case.draft is not None and case.draft.kind is ModelKind.UNKNOWN:
        yield "the draft model is of no known kind"


def _bound(n_bytes: int) -> int:
    return n_bytes + max(_UNPROVEN_BYTES, n_bytes // _UNPROVEN_DIVISOR) if n_bytes else 0
