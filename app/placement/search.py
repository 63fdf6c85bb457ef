"""LayoutSearch: the layouts of one method on one machine, from everything on one device down to the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from app.placement.assembly import planned_model
from app.placement.cache_types import QUANTISED_TYPES
from app.placement.methods import UsableMethod
from app.placement.splits import Counts, Split, best_split, split_patch
from app.placement.trials import Patch, Trial, Trials, joined, largest, smallest

_WISHED_TOKENS: Final = 32_768
_STEP_TOKENS: Final = 1024
# A context below this share of the wish is not offered.
_LEAST_SHARE: Final = 8
_MORE_SLOTS: Final = 4


class Tier(IntEnum):
    """Layouts in the order in which they are preferred."""

    ONE_DEVICE = 0
    MORE_DEVICES = 1
    ONE_DEVICE_SHORT = 2
    MORE_DEVICES_SHORT = 3
    HYBRID = 4
    HYBRID_SHORT = 5
    HOST = 6


@dataclass(frozen=True, slots=True)
class Candidate:
    """One trial that fits. `place` is the method's place among those of the files."""

    tier: Tier
    place: int
    trial: Trial
    reason: str
    is_variant: bool = False

    @property
    def rank(self) -> tuple[bool, int, bool, bool, int]:
        """By method, then by layout: a drafter is given up last. Weights read from disk again and again come after."""
        left = self.trial.planned.host.headroom_bytes
        return (left is not None and left < 0, self.place, self.is_variant, self.is_packed, self.tier)

    @property
    def is_packed(self) -> bool:
        """Whether the cache was quantised to make it fit, on more devices than one where it would fit unquantised."""
        return False

    def because(self, more: str) -> "Candidate":
        """The same with more said."""
        return replace(self, reason=self.reason + more)
