"""Profiles that go on without speculation, because theirs did not work and they say so (`on_degraded: baseline`)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from app.events import Event
from app.findings import Finding
from app.instances.facts import FindingRaised
from app.instances.instance import Instance
from app.profiles.profile import without_speculation
from app.profiles.stored import StoredProfile

_log = logging.getLogger(__name__)
# Others cost some speed; with these there is no speculation worth the name.
_HOPELESS: Final = ("speculation-inactive", "acceptance-collapsed")


class Fallback:
    """Remembers which revisions run without speculation; `again` begins to stop a profile and start it anew.

    It does not flap: a revision that has fallen back stays so until somebody takes it in hand.
    """

    def __init__(self, again: Callable[[str], object], publish: Callable[[Event], None]) -> None:
        self._again = again
        self._publish = publish
        self._reasons: dict[str, tuple[int, str]] = {}

    def as_launched(self, stored: StoredProfile) -> tuple[StoredProfile, str | None]:
        """The profile as it is to be launched, and the degradation for which it lost its speculation, if it did."""
        revision, reason = self._reasons.get(stored.profile.id, (stored.revision, None))
        if reason is None or revision != stored.revision:
            return stored, None
        return replace(stored, profile=without_speculation(stored.profile)), reason

    def degraded(self, life: Instance, findings: Sequence[Finding]) -> None:
        """An instance is degraded: where its profile says so, it is replaced by one without speculation."""
        hopeless = [found for found in findings if found.rule in _HOPELESS]
        profile = life.launch.profile
        if not hopeless or profile.serving.on_degraded != "baseline" or not profile.speculation.methods:
            return
        if profile.id in self._reasons and self._reasons[profile.id][0] == life.launch.revision:
            return
        found = hopeless[0]
        _log.warning("profile %s falls back to no speculation: %s", profile.id, found.message)
        self._reasons[profile.id] = (life.launch.revision, found.rule)
        self._publish(FindingRaised(profile.id, "fallback", found))
        self._again(profile.id)

    def clear(self, profile_id: str) -> None:
        """Somebody has taken it in hand: the next launch is as the profile says."""
        self._reasons.pop(profile_id, None)
