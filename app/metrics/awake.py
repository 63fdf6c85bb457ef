"""Which profiles are awake: their histograms are shown."""

import time
from collections.abc import Callable, Collection

from app.instances.state import InstanceStateChanged

# Longer than the windows over which dashboards and alerts look: the last values are then in each of them.
_AWAKE_SECONDS = 900.0


class Awake:
    """Profiles with a living instance, and those that ended or had a request within the last quarter of an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._living: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def touch(self, profile_id: str) -> None:
        """Something happened with this profile; the empty id is that of requests which reached none."""
        self._until[profile_id] = self._clock() + _AWAKE_SECONDS

    def on_instance_state(self, event: InstanceStateChanged) -> None:
        """An instance has begun or ended; the end of an older one says nothing about a newer."""
        self.touch(event.profile_id)
        if not event.state.is_terminal:
            self._living[event.profile_id] = event.instance_id
        elif self._living.get(event.profile_id) == event.instance_id:
            del self._living[event.profile_id]

    def forget(self, profile_id: str) -> None:
        """The profile is gone."""
        self._living.pop(profile_id, None)
        self._until.pop(profile_id, None)

    def profiles(self) -> Collection[str]:
        """Their ids."""
        now = self._clock()
        lately = [profile_id for profile_id, until in list(self._until.items()) if now < until]
        return {*lately, *list(self._living)}

    def labels(self) -> Collection[tuple[str]]:
        """The same, as values of the label `profile`."""
        return [(profile_id,) for profile_id in self.profiles()]
