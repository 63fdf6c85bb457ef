"""A lease: one request's hold on one instance, and what it needs to reach the engine."""

from dataclasses import dataclass, field
from typing import Protocol

from app.llama_server.endpoints import EngineClient


@dataclass(frozen=True, slots=True)
class Upstream:
    """An engine, and where it listens: a Unix socket (`socket_path`), or a loopback `port` where that cannot be.

    `api_key` is the random key of this launch; only the child and the relay know it. `may_draft` where it was launched
    with any method of speculation.
    """

    instance_id: int
    api_key: str = field(repr=False)
    socket_path: str | None = None
    port: int | None = None
    may_draft: bool = False

    def client(self) -> EngineClient:
        """A client for questions to the engine; close it after use."""
        return EngineClient(socket_path=self.socket_path, port=self.port, api_key=self.api_key)


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


class Holder(Protocol):
    """Who counts the holds on an instance."""

    def answered(self, lease: "Lease") -> None:
        """The engine has sent the first bytes of its answer."""

    def came_on(self, lease: "Lease") -> None:
        """The engine has sent more of its answer."""

    def released(self, lease: "Lease", *, has_failed: bool) -> None:
        """The hold is given back; `has_failed` where the engine broke off or did not answer."""


class Lease:
    """One request's hold on an instance. While it is held, a stop with a drain waits for it.

    Release it exactly once, in a `finally`; releasing again has no effect.
    """

    __slots__ = ("_holder", "context", "upstream")

    def __init__(self, upstream: Upstream, context: LaunchContext, holder: Holder) -> None:
        self.upstream = upstream
        self.context = context
        self._holder: Holder | None = holder

    def answered(self) -> None:
        """The first bytes of the answer are there: the engine is not stuck on this request."""
        if self._holder is not None:
            self._holder.answered(self)

    def came_on(self) -> None:
        """A further piece of the answer is there: the engine has not got stuck since."""
        if self._holder is not None:
            self._holder.came_on(self)

    def release(self, *, has_failed: bool = False) -> None:
        """Give the hold back, and say whether the engine failed the request."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.released(self, has_failed=has_failed)
