"""InstanceRecord: one life as others see it, alive or over. A value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.instances.state import InstanceState


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One life of one server process.

    `reason` names why it failed (or stopped other than asked), `failure` adds a sentence and the last lines.
    `load_progress` is `{stage, fraction, seconds}`; `fraction` is an estimate, None where none can be made.
    `speculation` is `{asked, active, method, draft_tokens_max}`; `active` is None until it has been proven. `slots` is
    what the engine tells once it does, before that what the profile asks for; None in records that are older than it.
    """

    id: int
    profile_id: str
    revision: int
    state: InstanceState
    engine_build: str
    argv: Sequence[str]
    created_at: datetime
    speculation: Mapping[str, Any]
    reason: str | None = None
    failure: Mapping[str, Any] | None = None
    degradations: Sequence[str] = ()
    pid: int | None = None
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    exit_code: int | None = None
    load_seconds: float | None = None
    load_progress: Mapping[str, Any] | None = None
    leases: int = 0
    queued: int = 0
    slots: int | None = None
    memory: Mapping[str, Any] = field(default_factory=lambda: {"predicted": {}, "measured": {}})
