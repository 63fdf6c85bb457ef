"""What has happened in one life so far. Written by its instance alone; others get records of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app.findings import Finding
from app.instances.diagnosis import degradations_of
from app.instances.evidence import Evidence, MeasuredPlacement, slots_of
from app.instances.readiness import Readiness
from app.instances.record import InstanceRecord
from app.instances.state import InstanceState
from app.launch.report import Launch, predicted_memory
from app.llama_server.log_lines import Failure


@dataclass(slots=True)
class Chronicle:
    """The facts of a life. `verdict` is why a server that lives shall not serve on; `stop_reason` why it was asked.

    `fallback_reason` is the degradation for which it was launched without speculation, None where it was not.
    """

    identifier: int
    launch: Launch
    argv: Sequence[str]
    fallback_reason: str | None = None
    state: InstanceState = InstanceState.STARTING
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    pid: int | None = None
    readiness: Readiness | None = None
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    exit_code: int | None = None
    failure: Failure | None = None
    verdict: Failure | None = None
    stop_reason: str | None = None
    load_progress: Mapping[str, Any] | None = None
    measured: MeasuredPlacement | None = None
    findings: Sequence[Finding] = ()

    @property
    def degradations(self) -> tuple[str, ...]:
        """The ids of what is not as the profile asks; none before it is ready."""
        return degradations_of(self.findings)

    def evidence(self) -> Evidence:
        """What is known of it without any looks at the machine."""
        readiness = self.readiness or Readiness()
        return Evidence(
            launch=self.launch,
            speculates=readiness.speculates,
            slots=readiness.slots,
            context_per_slot=readiness.context_per_slot,
            measured=self.measured,
            fallback_reason=self.fallback_reason,
        )

    @property
    def ready_seconds(self) -> float | None:
        """How long it has been, or was, ready to serve; None where it never was."""
        if self.ready_at is None:
            return None
        return ((self.stopped_at or datetime.now(UTC)) - self.ready_at).total_seconds()

    @property
    def ended_seconds_ago(self) -> float:
        """How long it has been over; without end where it is not."""
        return (datetime.now(UTC) - self.stopped_at).total_seconds() if self.stopped_at else math.inf

    @property
    def load_seconds(self) -> float | None:
        """How long it took to become ready; None where it did not."""
        return (self.ready_at - self.created_at).total_seconds() if self.ready_at else None

    def record(self, leases: int) -> InstanceRecord:
        """How it stands now, as a value."""
        launch = self.launch
        methods = launch.profile.speculation.methods
        return InstanceRecord(
            id=self.identifier,
            profile_id=launch.profile.id,
            revision=launch.revision,
            state=self.state,
            engine_build=launch.engine.build,
            argv=self.argv,
            created_at=self.created_at,
            speculation={
                "asked": bool(methods) or self.fallback_reason is not None,
                "active": self.readiness.speculates if self.readiness else None,
                "method": launch.profile.speculation.method.value,
                "draft_tokens_max": launch.resolved.draft_tokens_max if methods else 0,
            },
            reason=self.failure.reason if self.failure else self.stop_reason,
            failure=_document(self.failure),
            degradations=self.degradations,
            pid=self.pid if not self.state.is_terminal else None,
            ready_at=self.ready_at,
            stopped_at=self.stopped_at,
            exit_code=self.exit_code,
            load_seconds=self.load_seconds,
            load_progress=self.load_progress,
            leases=leases,
            slots=slots_of(self.evidence()),
            memory={
                "predicted": predicted_memory(launch.report),
                "measured": self.measured.memory if self.measured else {},
            },
        )


def _document(failure: Failure | None) -> Mapping[str, Any] | None:
    if failure is None:
        return None
    return {"reason": failure.reason, "message": failure.message, "last_lines": list(failure.last_lines)}
