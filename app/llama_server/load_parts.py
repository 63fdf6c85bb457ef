"""What was heard of the parts of a load: models with their contexts, and a projector. Filled by `load_lines`."""

import re
from dataclasses import dataclass, field

from app.llama_server.load_facts import Buffer, BufferKind, Cache, Part

_CACHED = frozenset({BufferKind.KV, BufferKind.RECURRENT})


@dataclass(slots=True)
class HeardModel:
    """What was said of one model and its context."""

    part: Part
    buffers: list[Buffer] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    blocks: int | None = None
    is_uneven: bool = False
    _open: list[Buffer] = field(default_factory=list)

    def keep(self, buffer: Buffer) -> None:
        """One buffer more."""
        self.buffers.append(buffer)
        if buffer.kind in _CACHED:
            self._open.append(buffer)

    def forget(self) -> None:
        """All of its memory."""
        self.buffers, self.caches, self._open = [], [], []

    def forget_compute(self) -> None:
        """The compute buffers: they are about to be made again."""
        self.buffers = [buffer for buffer in self.buffers if buffer.kind is not BufferKind.COMPUTE]

    def close_cache(self, kind: BufferKind, layers: int, n_bytes: int) -> None:
        """A cache is told buffer by buffer, and then as a whole."""
        placed: dict[str, int] = {}
        for buffer in self._open:
            if buffer.kind is kind:
                placed[buffer.place] = placed.get(buffer.place, 0) + buffer.n_bytes
        self._open = [buffer for buffer in self._open if buffer.kind is not kind]
        self.caches.append(Cache(self.part, kind, layers, n_bytes, placed))

    def describe(self, text: str) -> None:
        """Layers, and whether those with attention have caches of one size."""
        name, _, value = (word.strip() for word in text.partition("="))
        if name == "n_layer" and value.isdecimal():
            self.blocks = int(value)
        elif name == "n_embd_k_gqa":
            # One number, or a list with one for each layer, which is 0 for those without attention.
            self.is_uneven = len({word for word in re.findall(r"\d+", value) if word != "0"}) > 1


@dataclass(slots=True)
class HeardProjector:
    """One model for each modality of the projector's file."""

    places: list[str] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    compute: list[dict[str, int]] = field(default_factory=list)

    def begin(self, place: str) -> None:
        """The next of them."""
        self.places.append(place)
        self.weights.append(0)
        self.compute.append({})

    def buffers(self) -> list[Buffer]:
        """All of them together."""
        models = zip(self.places, self.weights, strict=True)
        computes = [item for told in self.compute for item in told.items()]
        return [
            *(Buffer(Part.PROJECTOR, BufferKind.MODEL, place, n_bytes) for place, n_bytes in models),
            *(Buffer(Part.PROJECTOR, BufferKind.COMPUTE, place, n_bytes) for place, n_bytes in computes),
        ]
