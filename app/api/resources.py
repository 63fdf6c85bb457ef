"""Shapes that several resources share."""

from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from app.identifiers import id_text
from app.instances.record import InstanceRecord

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A list; `next_cursor` asks for the next part, null at the end."""

    items: list[T]
    next_cursor: str | None = None


class InstanceResource(BaseModel):
    """One life of one server process, as the API shows it."""

    id: str
    profile_id: str
    revision: int
    state: str
    reason: str | None
    failure: dict[str, Any] | None
    degradations: list[str]
    pid: int | None
    argv: list[str]
    engine_build: str
    created_at: datetime
    ready_at: datetime | None
    stopped_at: datetime | None
    exit_code: int | None
    load_seconds: float | None
    load_progress: dict[str, Any] | None
    leases: int
    queued: int
    speculation: dict[str, Any]
    memory: dict[str, Any]

    @classmethod
    def of(cls, record: InstanceRecord) -> "InstanceResource":
        """The resource that shows this record."""
        return cls(
            id=id_text(record.id),
            profile_id=record.profile_id,
            revision=record.revision,
            state=record.state.value,
            reason=record.reason,
            failure=dict(record.failure) if record.failure else None,
            degradations=list(record.degradations),
            pid=record.pid,
            argv=list(record.argv),
            engine_build=record.engine_build,
            created_at=record.created_at,
            ready_at=record.ready_at,
            stopped_at=record.stopped_at,
            exit_code=record.exit_code,
            load_seconds=record.load_seconds,
            load_progress=dict(record.load_progress) if record.load_progress else None,
            leases=record.leases,
            queued=record.queued,
            speculation=dict(record.speculation),
            memory=dict(record.memory),
        )
