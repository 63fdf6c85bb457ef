"""Graph: one context of the engine as far as its compute buffers depend on it."""

from dataclasses import dataclass, field

from app.placement.context import ContextSize
from app.placement.layers import HOST, Layout
from app.placement.scratch import Batch
from app.placement.shape import ModelShape

_PIPELINE_COPIES = 4


@dataclass(frozen=True, slots=True)
class Moved:
    """What overrides took off the devices: layers whose experts, or dense feed-forward, are on the host.

    `is_asked` is true for any override at all, also one that moved nothing.
    """

    experts: frozenset[int] = frozenset()
    dense: frozenset[int] = frozenset()
    is_asked: bool = False

    def has(self, unit: int) -> bool:
        """Whether the feed-forward of this layer is on the host."""
        return unit in self.experts or unit in self.dense


@dataclass(frozen=True, slots=True)
class Graph:
    """One context's graph: the model, its sizes, where its units are, and what was moved.

    `is_dry_run` gives the figure that the engine's own dry run prints; a real load needs less on devices that follow
    another, where the dry run counts one hidden state too often.
    """

    shape: ModelShape
    size: ContextSize
    layout: Layout
    moved: Moved = Moved()
    is_dry_run: bool = False
    batch: Batch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", Batch(self.shape, self.size))

    @property
    def trunk(self) -> int:
        """Layers that the ordinary graph runs: the MTP layers are not among them."""
        return self.shape.block_count - self.shape.nextn_layers

    @property
    def is_pipelined(self) -> bool:
        """Whether the engine holds every input four times, to work on several micro-batches at once."""
        return (
            len(self.layout.devices) > 1
            and HOST not in self.layout.units
            and not self.layout.is_shared
            and not self.layout.splits_rows
            and self.size.is_on_devices
            and not self.moved.is_asked
        )

    @property
    def copies(self) -> int:
        """How often inputs are held."""
        return _PIPELINE_COPIES if self.is_pipelined else 1

    @property
    def logits_bytes(self) -> int:
        """The rows of logits that one micro-batch can ask for."""
        return self.shape.vocabulary_size * min(self.batch.tokens, self.size.outputs) * 4

    def trunk_units(self, place: int | None) -> list[int]:
        """Layers of the trunk there, in order."""
        return [unit for unit in self.layout.units_on(place) if unit < self.trunk]
