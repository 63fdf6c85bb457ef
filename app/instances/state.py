"""The states of an instance and which may follow which. DESIGN.md beside this file says why."""

from dataclasses import dataclass
from enum import StrEnum

from app.events import Event


class InstanceState(StrEnum):
    """Where one life of one server process stands."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """The process has been reaped, so its memory is free."""
        return self in (InstanceState.STOPPED, InstanceState.FAILED)

    def may_become(self, following: "InstanceState") -> bool:
        """Whether the state machine knows this step."""
        return following in _FOLLOWING[self]


_FOLLOWING: dict[InstanceState, frozenset[InstanceState]] = {
    InstanceState.STARTING: frozenset({InstanceState.LOADING, InstanceState.FAILED}),
    InstanceState.LOADING: frozenset({InstanceState.READY, InstanceState.STOPPING, InstanceState.FAILED}),
    InstanceState.READY: frozenset({InstanceState.DRAINING, InstanceState.FAILED}),
    InstanceState.DRAINING: frozenset({InstanceState.STOPPING, InstanceState.FAILED}),
    InstanceState.STOPPING: frozenset({InstanceState.STOPPED, InstanceState.FAILED}),
    InstanceState.STOPPED: frozenset(),
    InstanceState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class InstanceStateChanged(Event):
    """An instance has entered a state. On STOPPING, whoever holds connections to it closes them."""

    instance_id: int
    profile_id: str
    state: InstanceState
    reason: str | None = None
    load_seconds: float | None = None
