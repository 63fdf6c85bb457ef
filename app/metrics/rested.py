"""Series that are left out while nothing happens to them, so that nothing is missed when they come back."""

from collections.abc import Mapping
from typing import Generic, TypeVar

V = TypeVar("V")
Labels = tuple[str, ...]


class Rested(Generic[V]):
    """What series had when they were last shown. One that comes back shows that once more, and then what it has.

    A scraper takes the first value of a series for where it stood: without this, what happened between the awakening
    and the next scrape would be in no rate, and that is the slowest request of all, which waited for the load. Where
    several scrape, only the first of them is told so. Values are never changed, but replaced.
    """

    def __init__(self) -> None:
        self._shown: Mapping[Labels, V] = {}
        self._resting: dict[Labels, V] = {}

    def shown(self, now: Mapping[Labels, V]) -> Mapping[Labels, V]:
        """What to show of the series that are awake; to be asked once for each scrape."""
        for labels, value in self._shown.items():
            if labels not in now:
                self._resting[labels] = value
        self._shown = now
        return {labels: self._resting.pop(labels, value) for labels, value in now.items()}

    def forget(self, profile_id: str) -> None:
        """Nothing of this profile, the first label, is known any more."""
        self._shown = {labels: value for labels, value in self._shown.items() if labels[0] != profile_id}
        for labels in [labels for labels in list(self._resting) if labels[0] == profile_id]:
            self._resting.pop(labels, None)
