"""What an engine's output says of a load, as values: buffers, caches, slots, methods. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

HOST = "host"
# The engine prints MiB with two decimals: a figure is within half of the last one.
PRINTED_BYTES = (1 << 20) // 200


class Part(StrEnum):
    """Whose buffer it is. `mtp` is a second context on the target's own weights."""

    TARGET = "target"
    DRAFT = "draft"
    MTP = "mtp"
    PROJECTOR = "projector"


class BufferKind(StrEnum):
    """What a buffer holds."""

    MODEL = "model"
    KV = "kv"
    RECURRENT = "recurrent"
    COMPUTE = "compute"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer. `place` is a device by the engine's name, `host`, or what the engine called it where it is neither.

    A buffer that `is_mapped` spans a part of a file: from the first tensor that is read there to the last, whatever
    lies between them.
    """

    part: Part
    kind: BufferKind
    place: str
    n_bytes: int
    is_mapped: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of a context: its layers, all its bytes, and its bytes by place."""

    part: Part
    kind: BufferKind
    layers: int
    n_bytes: int
    placed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What was said so far. What was not is empty or None.

    `methods` are the engine's names of those that came up; `draft_lengths` is the longest draft of each.
    `block_counts` is the layers of each model without those of multi-token prediction; `uneven` are the models whose
    layers have caches of several sizes. `skips_tensors`: some tensors of the target's file were not loaded.
    `lost_pipelining`: buffers were too large at first, and were made again for one batch at a time.
    """

    buffers: Sequence[Buffer] = ()
    caches: Sequence[Cache] = ()
    block_counts: Mapping[Part, int] = field(default_factory=dict)
    uneven: frozenset[Part] = frozenset()
    slots: int | None = None
    context_per_slot: int | None = None
    unified_kv: bool | None = None
    methods: Sequence[str] | None = None
    draft_lengths: Mapping[str, int] = field(default_factory=dict)
    skips_tensors: bool = False
    lost_pipelining: bool = False

    def has(self, part: Part) -> bool:
        """Whether anything was said of that part."""
        return any(buffer.part is part for buffer in self.buffers)

    def by_place(self, part: Part, *kinds: BufferKind) -> dict[str, int]:
        """Bytes of these kinds of buffers together, by place; mapped ones are left out."""
        found: dict[str, int] = {}
        for buffer in self.buffers:
            if buffer.part is part and buffer.kind in kinds and not buffer.is_mapped:
                found[buffer.place] = found.get(buffer.place, 0) + buffer.n_bytes
        return found

    def layers(self, part: Part) -> dict[str, int]:
        """Layers by place, as the caches tell: a layer's cache lies where the layer does.

        Empty where they do not tell: layers of different sizes, caches too small for the printed digits, layers
        without a cache of their own.
        """
        if part in self.uneven:
            return {}
        attention = sum(cache.layers for cache in self.caches if cache.part is part and cache.kind is BufferKind.KV)
        blocks = self.block_counts.get(part, attention)
        found: dict[str, int] = {}
        for cache in self.caches:
            if cache.part is not part:
                continue
            # A recurrent cache prints the layers of the model; it holds those that the attention caches do not.
            layers = cache.layers if cache.kind is BufferKind.KV else blocks - attention
            for place, count in _divided(cache, layers).items():
                found[place] = found.get(place, 0) + count
        return found if sum(found.values()) == blocks else {}


def _divided(cache: Cache, layers: int) -> dict[str, int]:
    """The layers of one cache by place; empty where the figures do not come to whole layers."""
    if layers <= 0 or cache.n_bytes / layers <= 2 * PRINTED_BYTES:
        return {}
    each = cache.n_bytes / layers
    counts = {place: round(n_bytes / each) for place, n_bytes in cache.placed.items()}
    fits = all(abs(n_bytes - counts[place] * each) <= 2 * PRINTED_BYTES for place, n_bytes in cache.placed.items())
    return {place: count for place, count in counts.items() if count} if fits else {}
