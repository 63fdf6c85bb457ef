"""From what an engine said while it loaded to a placement in the words of a plan. Pure."""

from collections.abc import Iterator

from app.instances.evidence import MeasuredPlacement
from app.launch.report import Launch, predicted_memory
from app.llama_server.flags import SPEC_TYPES
from app.llama_server.load_facts import PRINTED_BYTES, BufferKind, LoadFacts, Part
from app.llama_server.load_lines import LoadLines
from app.placement.budgets import HOST_NAME
from app.placement.calibration import ESTIMATED_TERMS, Measured
from app.speculative.parameters import Method

_METHODS = {spelling: method for method, spelling in SPEC_TYPES.items()}
# Their drafters read states of the target, which makes room for them at the first request.
_READING = frozenset({Method.DFLASH, Method.DSPARK, Method.EAGLE3})
_CACHES_ON_HOST = frozenset({"-nkvo", "--no-kv-offload"})
_TERMS: dict[tuple[Part, BufferKind], str] = {
    (Part.TARGET, BufferKind.MODEL): "weights",
    (Part.TARGET, BufferKind.KV): "kv_cache",
    (Part.TARGET, BufferKind.RECURRENT): "recurrent_state",
    (Part.TARGET, BufferKind.COMPUTE): "compute",
    (Part.DRAFT, BufferKind.MODEL): "draft_weights",
    **{
        (part, kind): "draft_kv_cache"
        for part in (Part.DRAFT, Part.MTP)
        for kind in (BufferKind.KV, BufferKind.RECURRENT)
    },
    **{(part, BufferKind.COMPUTE): "draft_compute" for part in (Part.DRAFT, Part.MTP)},
    **{(Part.PROJECTOR, kind): "projector" for kind in (BufferKind.MODEL, BufferKind.COMPUTE)},
}


class PlacementReader:
    """Reads the output of one life until its model is loaded; later lines are no longer the engine's alone."""

    def __init__(self) -> None:
        self._lines = LoadLines()

    def line(self, text: str) -> bool:
        """Take in one line, without its line feed. Whether the load is complete with it: true once."""
        was_complete = self._lines.is_complete
        self._lines.add(text)
        return self._lines.is_complete and not was_complete

    def placement(self, launch: Launch) -> MeasuredPlacement:
        """What the lines so far come to for this launch."""
        return measured_placement(self._lines.facts, launch)


def measured_placement(facts: LoadFacts, launch: Launch) -> MeasuredPlacement:
    """The facts of a load in the terms of its plan."""
    methods = None if facts.methods is None else [_METHODS.get(name, name) for name in facts.methods]
    memory, mapped = _memory(facts, launch)
    drafter = Part.DRAFT if facts.has(Part.DRAFT) else Part.MTP
    return MeasuredPlacement(
        memory=memory,
        mapped=mapped,
        unsettled=frozenset(_unsettled(facts, launch)),
        layers=_layers(facts, launch, Part.TARGET),
        draft_layers=_layers(facts, launch, drafter),
        methods=methods,
        draft_tokens_max=_longest_draft(facts, launch),
        slots=facts.slots,
        context_per_slot=facts.context_per_slot,
        unified_kv=facts.unified_kv,
    )


def calibration_of(placement: MeasuredPlacement) -> Measured:
    """What later plans of the same launch may rely on: without what is unsettled, and estimates rounded up."""
    settled = {
        place: {
            term: n_bytes + (PRINTED_BYTES if term in ESTIMATED_TERMS else 0)
            for term, n_bytes in terms.items()
            if term not in placement.unsettled
        }
        for place, terms in placement.memory.items()
    }
    return {place: terms for place, terms in settled.items() if terms}


def _memory(facts: LoadFacts, launch: Launch) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Bytes by place and term, and those of files that are only known to be mapped."""
    places = {*predicted_memory(launch.report), *launch.resolved.devices}
    memory: dict[str, dict[str, int]] = {}
    mapped: dict[str, dict[str, int]] = {}
    vague = {
        (part, place)
        for part in (Part.TARGET, Part.DRAFT)
        for place in places
        if not _tells_weights(facts, part, place)
    }
    for buffer in facts.buffers:
        term = _TERMS.get((buffer.part, buffer.kind))
        # In split mode `tensor` buffers lie on a device that stands for all of them: no place is told.
        if term is None or buffer.place not in places:
            continue
        is_vague = buffer.kind is BufferKind.MODEL and (buffer.part, buffer.place) in vague
        if is_vague and not buffer.is_mapped:
            continue
        terms = (mapped if is_vague else memory).setdefault(buffer.place, {})
        terms[term] = terms.get(term, 0) + buffer.n_bytes
    return memory, mapped


def _tells_weights(facts: LoadFacts, part: Part, place: str) -> bool:
    """Whether the buffers of weights in a place are no larger than the weights.

    A mapped one spans all between its first and its last tensor: that is the weights where a model is all in one place.
    """
    model = [buffer for buffer in facts.buffers if buffer.part is part and buffer.kind is BufferKind.MODEL]
    if not any(buffer.is_mapped and buffer.place == place for buffer in model):
        return True
    is_whole = all(buffer.is_mapped and buffer.place == place for buffer in model)
    return is_whole and not (part is Part.TARGET and facts.skips_tensors)


def _layers(facts: LoadFacts, launch: Launch, part: Part) -> dict[str, int]:
    if not _CACHES_ON_HOST.isdisjoint(launch.flags):
        return {}
    layers = facts.layers(part)
    return layers if {HOST_NAME, *launch.resolved.devices, launch.resolved.draft_device} >= layers.keys() else {}


def _unsettled(facts: LoadFacts, launch: Launch) -> Iterator[str]:
    if not _READING.isdisjoint(launch.profile.speculation.methods):
        yield "compute"
    if facts.lost_pipelining:
        # There was no memory for the buffers that the same launch asks for first, the next time too.
        yield from ("compute", "draft_compute")


def _longest_draft(facts: LoadFacts, launch: Launch) -> int | None:
    """Of the profile's own method where it drafts, else of any."""
    lengths = {_METHODS.get(name, name): length for name, length in facts.draft_lengths.items()}
    method = launch.profile.speculation.method
    told = lengths.get(method, max(lengths.values(), default=None))
    if told is not None and method is Method.MTP and method in lengths:
        # Printed before it is cut to the heads that follow one another.
        return min(told, launch.resolved.draft_tokens_max)
    return told
