"""The newest instance of each profile, kept up to date by events."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.cli.client import ServiceClient, ServiceProblem, ServiceUnreachable
from app.cli.event_source import Message

Instance = Mapping[str, Any]

# Under load requests finish by the hundred; their leases are looked up no oftener than this.
_LOOK_SECONDS = 0.5
_STOPPED = "stopped"


class Board:
    """Asks the service once, then hears what changes. `shown` is replaced as a whole, so another thread may read it.

    `everything` also shows what was stopped; `clock` answers monotonic seconds.
    """

    def __init__(self, client: ServiceClient, *, everything: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._everything = everything
        self._clock = clock
        self._instances: dict[str, Instance] = {}
        self._outdated: set[str] = set()
        self._looked = 0.0
        self._knows = False
        self.shown: Sequence[Instance] = ()
        self.is_lost = False

    def look(self) -> None:
        """Ask for all of them."""
        statuses = {profile["id"]: profile["status"] for profile in self._client.get("/profiles")["items"]}
        newest = {instance["id"]: instance for instance in self._client.get("/instances", limit=1000)["items"]}
        self._instances = {}
        for profile_id, status in statuses.items():
            identifier = status["instance_id"]
            if identifier is not None:
                found = newest.get(identifier) or self._client.get(f"/instances/{identifier}")
                self._instances[profile_id] = found
        self._outdated.clear()
        self._knows, self.is_lost = True, False
        self._show()

    def lose(self) -> None:
        """The connection is gone: what happens until it is back is not heard."""
        self._knows, self.is_lost = False, True

    def hear(self, message: Message | None) -> bool:
        """Take note of what a stream of events sent; whether something is to be shown anew."""
        try:
            return self._hear(message)
        except ServiceUnreachable:
            # The stream breaks off too, and is made again.
            self.lose()
            return False

    def _hear(self, message: Message | None) -> bool:
        if not self._knows or (message is not None and message.name == "missed"):
            self.look()
            # The message is older than the look, or about what it has seen.
            return True
        if message is not None and message.name.startswith("instance."):
            self._replace(message.document)
        elif message is not None and message.name == "request.finished":
            self._outdated.add(message.document["profile_id"])
        if self._outdated and self._clock() - self._looked >= _LOOK_SECONDS:
            self._look_again()
        return self._show()

    def _replace(self, instance: Instance) -> None:
        profile_id = instance["profile_id"]
        known = self._instances.get(profile_id)
        if known is None or known["id"] <= instance["id"]:
            # An event about a life that is known no more has a few of the fields only.
            self._instances[profile_id] = instance if "memory" in instance else {**(known or {}), **instance}

    def _look_again(self) -> None:
        """Leases have changed without an event of their own."""
        for profile_id in self._outdated & self._instances.keys():
            try:
                self._instances[profile_id] = self._client.get(f"/instances/{self._instances[profile_id]['id']}")
            except ServiceProblem:
                del self._instances[profile_id]
        self._outdated.clear()
        self._looked = self._clock()

    def _show(self) -> bool:
        shown = [
            instance
            for _, instance in sorted(self._instances.items())
            if "memory" in instance and (self._everything or instance["state"] != _STOPPED)
        ]
        is_new = shown != self.shown
        self.shown = shown
        return is_new
