"""Records of lives."""

from dataclasses import replace
from datetime import UTC, datetime

from app.instances.record import InstanceRecord
from app.instances.state import InstanceState

RECORD = InstanceRecord(
    id=7,
    profile_id="p",
    revision=2,
    state=InstanceState.READY,
    engine_build="b1",
    argv=["llama-server", "--x"],
    created_at=datetime(2026, 11, 29, 12, 0, 0, 123456, UTC),
    ready_at=datetime(2026, 11, 29, 12, 0, 5, tzinfo=UTC),
    speculation={"asked": True, "active": True, "method": "draft", "draft_tokens_max": 3},
    degradations=["context-smaller-than-asked"],
    pid=4242,
    load_seconds=4.876544,
    leases=1,
)
STOPPED = replace(
    RECORD,
    state=InstanceState.STOPPED,
    reason="idle-timeout",
    stopped_at=datetime(2026, 11, 29, 13, tzinfo=UTC),
    exit_code=0,
    pid=None,
    leases=0,
)
