"""A lease: one request's hold on one instance, and what it needs to reach the engine."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where an engine listens: a Unix socket (`socket_path`), or a loopback `port` where that cannot be.

    `api_key` is the random key of this launch; only the child and the relay know it.
    """

    instance_id: int
    api_key: str
    socket_path: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What a request was served by: the provenance of every number that is recorded.

    `argv_hash` is the first 16 hexadecimal digits of the BLAKE2b of the argv; `device_set` the devices used, joined
    by commas, or `cpu`.
    """

    profile_id: str
    revision: int
    engine_build: str
    argv_hash: str
    device_set: str
    method: str


class Lease:
    """One request's hold on an instance. While it is held, a stop with a drain waits for it.

    Release it exactly once, in a `finally`; releasing again has no effect.
    """

    __slots__ = ("_on_release", "context", "upstream")

    def __init__(self, upstream: Upstream, context: LaunchContext, on_release: Callable[[], None]) -> None:
        self.upstream = upstream
        self.context = context
        self._on_release: Callable[[], None] | None = on_release

    def release(self) -> None:
        """Give the hold back."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()
